//! Which commands can destroy what cannot be restored, so that permission for them is given for one call at a time.
//!
//! Looks at words only, wherever they stand: a wrapper (`sudo`, `xargs`, `sh -c`) hides none. A command that is named here
//! by mistake costs a question more, nothing else.

/// Programs and subcommands that remove or overwrite things.
const PROGRAMS: &str = "rm rmdir unlink shred srm wipe dd truncate mkfs mke2fs mkswap wipefs blkdiscard fdisk sfdisk \
    gdisk sgdisk parted cryptsetup lvremove vgremove pvremove zpool zfs rimraf diskutil prune purge destroy \
    uninstall userdel groupdel crontab shutdown reboot poweroff halt kill killall pkill dropdb dropuser rsync";
/// Options that remove things, of any program.
const OPTIONS: &str = "-delete --delete --force-delete --remove-files --hard --mirror --force --force-with-lease --purge";
/// Words that remove things together with the word before them, as in `git clean`.
const PAIRS: &str = "git/clean git/gc git/filter-branch git/filter-repo git/reflog stash/drop stash/clear kubectl/delete \
    git/restore git/checkout branch/-D branch/-d tag/-d push/-f push/-d chmod/-R chown/-R redis-cli/flushall gh/delete \
    repo/delete helm/delete docker/rmi";
/// Statements of databases.
const STATEMENTS: [&str; 4] = ["drop", "delete", "truncate", "flushall"];

/// Tells whether a command, in its normal form, can destroy something.
pub(super) fn can_destroy(command: &str) -> bool {
    let is_end = |letter: char| letter.is_whitespace() || "'\"`;|&(){}<>$=".contains(letter);
    let words: Vec<&str> = command.split(is_end).filter(|word| !word.is_empty()).collect();
    let is_in = |list: &str, word: &str| list.split_whitespace().any(|known| known == word);
    let has_pair = words.windows(2).any(|pair| is_in(PAIRS, &pair.join("/")));
    has_pair
        || words.iter().any(|word| {
            let name = word.rsplit('/').next().unwrap_or(word).trim_start_matches('\\');
            let is_statement =
                STATEMENTS.iter().any(|statement| name.eq_ignore_ascii_case(statement));
            is_in(PROGRAMS, name)
                || name.starts_with("mkfs.")
                || is_in(OPTIONS, word)
                || is_statement && words.len() > 2
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn commands_that_destroy_are_recognised_behind_wrappers_and_in_quotes() {
        for command in [
            "rm -rf /",
            "rm x",
            "/bin/rm -r x",
            "\\rm x",
            "sudo rm -rf /",
            "xargs rm",
            "sh -c 'rm -rf /'",
            "find . -delete",
            "find . -exec rm '{}' ';'",
            "git clean -fdx",
            "git reset --hard",
            "git push --force",
            "git push -f origin main",
            "git branch -D x",
            "git checkout .",
            "dd if=/dev/zero of=/dev/sda",
            "mkfs.ext4 /dev/sda1",
            "docker system prune",
            "kubectl delete pod x",
            "terraform destroy",
            "psql -c 'DROP TABLE users'",
            "chmod -R 777 /",
            "rsync -a --delete a b",
            "npx rimraf dist",
        ] {
            assert!(can_destroy(command), "{command}");
        }
        for command in [
            "make",
            "cargo test",
            "npm run build",
            "git commit -m x",
            "git push",
            "python3 x.py",
            "ls",
            "cargo build --release",
            "touch a",
            "mkdir -p a/b",
            "git add .",
            "cargo fmt",
        ] {
            assert!(!can_destroy(command), "{command}");
        }
    }
}
