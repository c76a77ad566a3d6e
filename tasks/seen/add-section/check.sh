head -n 7 README.md | cmp -s - "$ORIGINAL/README.md" || fail "the beginning of README.md was changed"
tail -n +8 README.md >tail.txt
has tail.txt '^#+ License'
has tail.txt 'licensed under the MIT license'
only README.md
