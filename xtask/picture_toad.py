#!/usr/bin/env python3
"""Makes docs/images/toad.svg from a real screen: Purlin in Toad, an ACP client of others for the terminal.

Toad comes from PyPI and needs Python 3.14, so it runs in a Debian testing of its own below target/, made once with debootstrap.
Needs root, debootstrap, bubblewrap and a built program: cargo build && cargo xtask picture toad
"""

import os
import shutil
import subprocess
import sys
import time

import picture

TOAD = "batrachian-toad==0.6.20"
COLUMNS, ROWS = 110, 24
SYSTEM = os.path.join(picture.ROOT, "target/system-forky")
PROMPT = "The total of src/cart.rs is wrong, please fix it"
PACKAGES = "python3,python3-venv,tmux,git,ca-certificates"


def run(*words, **options):
    return subprocess.run(words, check=True, text=True, capture_output=options.pop("quiet", False), **options).stdout


def inside(*words, **options):
    mounts = ["--bind", SYSTEM, "/", "--proc", "/proc", "--dev", "/dev", "--chdir", "/root"]
    variables = ["HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"]
    return run("bwrap", *mounts, "env", *variables, *words, **options)


def prepare():
    """Makes the system with Toad, once."""
    if os.path.exists(os.path.join(SYSTEM, "complete")):
        return
    mirror = next(line.split()[1] for line in open("/etc/apt/sources.list.d/debian.sources") if line.startswith("URIs:"))
    scripts = "/usr/share/debootstrap/scripts/sid"
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "forky", SYSTEM, mirror, scripts)
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(name, SYSTEM + name)
    shutil.copytree("/etc/ssl/certs", SYSTEM + "/etc/ssl/certs", symlinks=True, dirs_exist_ok=True)
    inside("sh", "-c", f"python3 -m venv /toad && /toad/bin/pip install --quiet {TOAD}")
    open(os.path.join(SYSTEM, "complete"), "w").close()


def screen():
    """Asks Purlin for an edit in Toad and returns the lines of the screen when it asks for permission."""
    project = os.path.join(SYSTEM, "root/shop")
    shutil.rmtree(project, ignore_errors=True)
    os.makedirs(os.path.join(project, "src"))
    with open(os.path.join(project, "src/cart.rs"), "w") as file:
        file.write(picture.SOURCE)
    with open(os.path.join(SYSTEM, "root/play.acp"), "w") as file:
        file.write(picture.SCRIPT)
    shutil.copy(os.path.join(picture.ROOT, "target/debug/purlin"), os.path.join(SYSTEM, "usr/local/bin/purlin"))
    inside("git", "-C", "/root/shop", "init", "--quiet")

    def tmux(*words):
        return inside("tmux", "-u", "-S", "/tmp/tmux", "-f", "/dev/null", *words, quiet=True)

    def shows(text):
        for _ in range(600):
            if text in tmux("capture-pane", "-p"):
                return
            time.sleep(0.1)
        raise SystemExit(f"the screen never showed {text!r}:\n" + tmux("capture-pane", "-p"))

    agent = "purlin acp --model script:/root/play.acp"
    line = f"cd /root/shop && exec env TERM=xterm-256color COLORTERM=truecolor /toad/bin/toad acp '{agent}' /root/shop"
    tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), line)
    try:
        # The mode is shown as soon as Toad has opened the session.
        shows("Build")
        tmux("send-keys", PROMPT)
        shows(PROMPT)
        # Toad takes a key for pasted text if it comes at once.
        time.sleep(2)
        tmux("send-keys", "Enter")
        shows("item.price * item")
        return tmux("capture-pane", "-p", "-e").rstrip("\n").split("\n")
    finally:
        tmux("kill-server")


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("needs root")
    prepare()
    lines = screen()
    picture.COLUMNS = COLUMNS
    path = os.path.join(picture.ROOT, "docs/images/toad.svg")
    with open(path, "w") as file:
        file.write(picture.svg(lines))
    print(path)
