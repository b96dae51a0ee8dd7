//! The layout of binary GOAL, little endian and packed:
//!
//! cookie u64 | ranks u32 | largest cpu u8 | largest nic u8 | begin u64 and end u64 of each rank
//! (relative to byte 8) | then for each rank: operations u32, roots u32, the roots' numbers u32, the
//! operations (39 bytes each), and their successors' numbers u32.

pub(super) const COOKIE: u64 = 4223;
/// The cookie left behind by a run with --save-mem.
pub(super) const COOKIE_USED_UP: u64 = 2342;
pub(super) const COOKIES: [[u8; 8]; 2] = [COOKIE.to_le_bytes(), COOKIE_USED_UP.to_le_bytes()];

/// Offsets of ranks are relative to this.
pub(super) const ORIGIN: u64 = 8;
pub(super) const HEADER: u64 = 6;
pub(super) const NODE: usize = 39;

/// An operation as stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub dependencies: u32,
    pub kind: u8,
    pub peer: u32,
    pub size: u64,
    pub tag: u32,
    pub cpu: u8,
    pub nic: u8,
    pub successors: u32,
    /// Index of its first successor in the rank's list.
    pub successors_at: u32,
    pub start_successors: u32,
    pub start_successors_at: u32,
}

impl Node {
    pub fn to_bytes(self) -> [u8; NODE] {
        let mut bytes = [0; NODE];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&self.dependencies.to_le_bytes());
        put(&[self.kind]);
        put(&self.peer.to_le_bytes());
        put(&self.size.to_le_bytes());
        put(&self.tag.to_le_bytes());
        put(&[self.cpu, self.nic]);
        put(&self.successors.to_le_bytes());
        put(&self.successors_at.to_le_bytes());
        put(&self.start_successors.to_le_bytes());
        put(&self.start_successors_at.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; NODE]) -> Node {
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        Node {
            dependencies: u32_at(0),
            kind: bytes[4],
            peer: u32_at(5),
            size: u64::from(u32_at(9)) | u64::from(u32_at(13)) << 32,
            tag: u32_at(17),
            cpu: bytes[21],
            nic: bytes[22],
            successors: u32_at(23),
            successors_at: u32_at(27),
            start_successors: u32_at(31),
            start_successors_at: u32_at(35),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_39_bytes_are_a_node_and_back(bytes in prop::array::uniform32(any::<u8>()), more in any::<[u8; 7]>()) {
            let mut node = [0; NODE];
            node[..32].copy_from_slice(&bytes);
            node[32..].copy_from_slice(&more);
            prop_assert_eq!(Node::from_bytes(&node).to_bytes(), node);
        }
    }
}
