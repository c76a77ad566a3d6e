mkdir -p 'check this' plain
touch 'check this/a' 'check this/b' 'check this/c' plain/a
prints 3 sh count.sh 'check this'
prints 1 sh count.sh plain
only count.sh
