prints 'body {
    color: blue;
}' cat style.css
only style.css
