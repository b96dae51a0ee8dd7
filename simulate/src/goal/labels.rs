//! The labels of one rank and their operations. Generated schedules use `l1`, `l2`, ...; those are
//! looked up by number.

use std::collections::HashMap;

use crate::event::OpId;

const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct RankLabels {
    numbered: Vec<u32>,
    named: HashMap<Vec<u8>, OpId>,
}

impl RankLabels {
    pub fn clear(&mut self) {
        self.numbered.clear();
        self.named.clear();
    }

    /// False if the label is already in use.
    pub fn insert(&mut self, label: &[u8], op: OpId) -> bool {
        match number(label) {
            // A large number in a small rank is treated like any other name.
            Some(number) if number <= 4 * (op.0 as usize + 16) => {
                if number >= self.numbered.len() {
                    self.numbered.resize(number + 1, NONE);
                }
                let place = &mut self.numbered[number];
                let new = *place == NONE && !self.named.contains_key(label);
                if new {
                    *place = op.0;
                }
                new
            }
            _ if self.named.contains_key(label) => false,
            _ => self.named.insert(label.to_vec(), op).is_none(),
        }
    }

    pub fn get(&self, label: &[u8]) -> Option<OpId> {
        let numbered = number(label).and_then(|number| self.numbered.get(number));
        match numbered {
            Some(&op) if op != NONE => Some(OpId(op)),
            _ if self.named.is_empty() => None,
            _ => self.named.get(label).copied(),
        }
    }
}

/// 12 of `l12`; None for anything else, `l012` included.
#[inline]
pub(super) fn number(label: &[u8]) -> Option<usize> {
    let (b'l', digits) = label.split_first()? else { return None };
    if digits.is_empty() || digits.len() > 9 || digits[0] == b'0' {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + usize::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_for_one_operation_each() {
        let mut labels = RankLabels::default();
        assert!(labels.insert(b"l1", OpId(0)));
        assert!(labels.insert(b"l01", OpId(1)));
        assert!(labels.insert(b"halo", OpId(2)));
        assert!(labels.insert(b"l900000000", OpId(3)));
        assert!(!labels.insert(b"l1", OpId(4)) && !labels.insert(b"halo", OpId(4)));
        assert!(!labels.insert(b"l900000000", OpId(400_000_000)));
        assert_eq!(labels.get(b"l01"), Some(OpId(1)));
        assert_eq!(labels.get(b"l900000000"), Some(OpId(3)));
        assert_eq!(labels.get(b"l2"), None);
        labels.clear();
        assert_eq!(labels.get(b"l1"), None);
    }
}
