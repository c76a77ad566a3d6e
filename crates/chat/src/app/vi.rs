//! The common commands of vi in the input.

use super::App;
use crate::keys::{Key, KeyCode};

impl App {
    /// Returns false for keys that mean the same in vi.
    pub(super) fn vi_key(&mut self, key: Key) -> bool {
        if !self.is_vi_normal {
            let enters =
                key.code == KeyCode::Esc && !self.editor.text().is_empty() && self.turn.is_none();
            self.is_vi_normal = enters;
            return enters;
        }
        let KeyCode::Char(letter) = key.code else {
            self.vi_operator = None;
            return false;
        };
        if key.ctrl || key.alt {
            return false;
        }
        match self.vi_operator.take() {
            Some(operator) => self.vi_operate(operator, letter),
            None if matches!(letter, 'd' | 'c') => self.vi_operator = Some(letter),
            None => self.vi_command(letter),
        }
        true
    }

    /// An operator and a motion: `dw`, `c$`, `dd`.
    fn vi_operate(&mut self, operator: char, motion: char) {
        let from = self.editor.cursor();
        let to = if motion == operator {
            self.editor.home();
            let from = self.editor.cursor();
            self.editor.end();
            Some((from, self.editor.cursor()))
        } else {
            self.vi_motion(motion).then(|| (from, self.editor.cursor()))
        };
        if let Some((from, to)) = to {
            self.editor.kill_between(from.min(to), from.max(to));
            self.is_vi_normal = operator == 'd';
        }
    }

    /// Moves the cursor; returns false for a letter that is no motion.
    fn vi_motion(&mut self, letter: char) -> bool {
        let editor = &mut self.editor;
        match letter {
            'h' => editor.left(),
            'l' => editor.right(),
            'w' => editor.next_word(),
            'e' => editor.word_right(),
            'b' => editor.word_left(),
            '0' | '^' => editor.home(),
            '$' => editor.end(),
            'G' => editor.go_to_end(),
            _ => return false,
        }
        true
    }

    fn vi_command(&mut self, letter: char) {
        match letter {
            'k' => return self.up(),
            'j' => return self.down(),
            'i' | 'a' | 'A' | 'I' | 'o' | 'O' | 's' | 'S' | 'C' => self.is_vi_normal = false,
            _ => {}
        }
        let editor = &mut self.editor;
        match letter {
            'a' => editor.right(),
            'A' => editor.end(),
            'I' => editor.home(),
            'o' => {
                editor.end();
                editor.insert("\n");
            }
            'O' => {
                editor.home();
                editor.insert("\n");
                editor.left();
            }
            'x' | 's' => editor.delete(),
            'X' => editor.backspace(),
            'D' | 'C' => editor.kill_line(),
            'S' => self.vi_operate('c', 'c'),
            'p' | 'P' => editor.yank(),
            'u' => editor.undo(),
            letter => {
                self.vi_motion(letter);
            }
        }
    }
}
