[ ! -e notes.txt ] || fail "notes.txt still exists"
[ -f docs/notes.md ] || fail "docs/notes.md is missing"
cmp -s docs/notes.md "$ORIGINAL/notes.txt" || fail "the content of the notes was changed"
only notes.txt
