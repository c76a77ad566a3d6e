#!/usr/bin/env python3
"""Makes docs/guide/chat.svg from a real screen: runs the terminal client in tmux, types, and draws what tmux shows.

Needs tmux and a built program: cargo build && cargo xtask picture
"""

import html
import os
import re
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMNS, ROWS = 84, 33
SCRIPT = r'''
model thought "The test fails because the price is added instead of multiplied."
model text "The total is wrong because of **one operator**. I fix it and run the tests:\n\n1. change `total` in `src/cart.rs`\n2. run the tests\n"
model tool read {"filePath":"src/cart.rs"}
model tool edit {"filePath":"src/cart.rs","oldString":"item.price + item.count","newString":"item.price * item.count"}
model usage {"input":5200,"output":310}
model text "Done."
'''
SOURCE = """pub fn total(items: &[Item]) -> u32 {
    items
        .iter()
        .map(|item| item.price + item.count)
        .sum()
}
"""
PALETTE = ["#1d1f21", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0",
           "#7f848e", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#ffffff"]


def screen():
    """Runs the client and returns the lines of the screen with their escape sequences."""
    with tempfile.TemporaryDirectory() as folder:
        project = os.path.join(folder, "shop")
        os.makedirs(os.path.join(project, "src"))
        with open(os.path.join(project, "src/cart.rs"), "w") as file:
            file.write(SOURCE)
        play = os.path.join(folder, "play.acp")
        with open(play, "w") as file:
            file.write(SCRIPT)
        subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", project], check=True)

        def tmux(*args):
            command = ["tmux", "-S", os.path.join(folder, "tmux"), "-f", "/dev/null", *args]
            return subprocess.run(command, capture_output=True, text=True, check=True, cwd=project).stdout

        program = os.path.join(ROOT, "target/debug/purlin")
        line = f"exec env HOME='{folder}' COLORTERM=truecolor '{program}' chat --model 'script:{play}'"
        tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), line)

        def shows(text):
            for _ in range(600):
                if text in tmux("capture-pane", "-p"):
                    return
                time.sleep(0.1)
            raise SystemExit(f"the screen never showed {text!r}")

        try:
            shows("Build ·")
            tmux("send-keys", "The total of @src/cart.rs is wrong, please fix it", "Enter")
            shows("Allow once")
            lines = tmux("capture-pane", "-p", "-e").rstrip("\n").split("\n")
        finally:
            tmux("kill-server")
        return [line.replace(folder, "~") for line in lines]


def color(codes):
    """Reads a colour after 38 or 48."""
    if codes[0] == 2:
        return "#%02x%02x%02x" % tuple(codes[1:4]), codes[4:]
    number = codes[1]
    if number < 16:
        return PALETTE[number], codes[2:]
    if number > 231:
        return "#%02x%02x%02x" % ((8 + 10 * (number - 232),) * 3), codes[2:]
    steps = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#%02x%02x%02x" % (steps[number // 36], steps[number // 6 % 6], steps[number % 6]), codes[2:]


def spans(line, style):
    """Yields the text of a line with its style."""
    for part in re.split(r"(\x1b\[[0-9;:]*m)", line):
        if not part.startswith("\x1b"):
            if part:
                yield part, dict(style)
            continue
        codes = [int(code or 0) for code in re.split("[;:]", part[2:-1])]
        while codes:
            code, codes = codes[0], codes[1:]
            if code == 0:
                style.clear()
            elif code in (1, 2, 3, 4, 9):
                style[code] = True
            elif code in (22, 23, 24, 29):
                for off in {22: (1, 2), 23: (3,), 24: (4,), 29: (9,)}[code]:
                    style.pop(off, None)
            elif code in (38, 48):
                style["fg" if code == 38 else "bg"], codes = color(codes)
            elif code in (39, 49):
                style.pop("fg" if code == 39 else "bg", None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                style["fg"] = PALETTE[code - 30 if code < 90 else code - 82]
            elif 40 <= code <= 47:
                style["bg"] = PALETTE[code - 40]


def svg(lines):
    width, height = 8.4, 18
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * width + 24:.0f} {len(lines) * height + 24}" '
           'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">',
           '<rect width="100%" height="100%" rx="8" fill="#1d1f21"/>']
    style = {}
    for row, line in enumerate(lines):
        column, y = 0, 12 + row * height
        for text, look in spans(line, style):
            x, length = 12 + column * width, len(text) * width
            if "bg" in look:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{height}" fill="{look["bg"]}"/>')
            if text.strip():
                rest = ' font-weight="bold"' if 1 in look else ""
                rest += ' opacity="0.6"' if 2 in look else ""
                rest += ' font-style="italic"' if 3 in look else ""
                rest += ' text-decoration="underline"' if 4 in look else ""
                out.append(f'<text x="{x:.1f}" y="{y + 13}" textLength="{length:.1f}" xml:space="preserve" '
                           f'fill="{look.get("fg", "#d7dae0")}"{rest}>{html.escape(text)}</text>')
            column += len(text)
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    path = os.path.join(ROOT, "docs/guide/chat.svg")
    with open(path, "w") as file:
        file.write(svg(screen()))
    print(path)
