//! The labels of operations. Nearly all schedules are generated and use `l1`, `l2`, ... in order,
//! which needs no memory: only other labels are stored.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    text: String,
    /// Operation and end of its label in `text`, in the order of operations.
    ends: Vec<(u32, usize)>,
}

impl Labels {
    /// Operations must come in order; a second label for one is ignored.
    pub fn push(&mut self, op: u32, label: &str) {
        if self.ends.last().is_none_or(|&(last, _)| last < op) {
            self.text.push_str(label);
            self.ends.push((op, self.text.len()));
        }
    }

    pub fn get(&self, op: u32) -> Option<&str> {
        let at = self.ends.binary_search_by_key(&op, |&(op, _)| op).ok()?;
        let begin = if at == 0 { 0 } else { self.ends[at - 1].1 };
        Some(&self.text[begin..self.ends[at].1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_for_the_operations_that_have_one() {
        let mut labels = Labels::default();
        labels.push(3, "start");
        labels.push(7, "halo_x");
        assert_eq!(labels.get(3), Some("start"));
        assert_eq!(labels.get(7), Some("halo_x"));
        assert_eq!(labels.get(4), None);
        assert_eq!(Labels::default().get(0), None);
    }
}
