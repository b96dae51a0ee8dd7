//! Room for arrays that are visited all over the place. In pages of 4 KB almost every visit has to
//! look up first where its page is, which takes longer than the visit; so large arrays are laid in
//! pages of 2 MB, where the system has them. It is a wish: nothing but the time depends on it.

const LARGE_PAGE: usize = 2 << 20;
/// What the allocator puts in front of an allocation, and more.
const ASIDE: usize = 64;

/// Room for so many more. Like [`Vec::reserve`], at least doubles.
pub fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        reserve_exact(list, more.max(list.capacity()));
    }
}

/// Room for so many more, and what is left of the last page.
pub fn reserve_exact<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() >= more {
        return;
    }
    let bytes = list.len().saturating_add(more).saturating_mul(size_of::<T>());
    if bytes < 2 * LARGE_PAGE {
        list.reserve_exact(more);
        return;
    }
    // Only what is a multiple of large pages is laid where one begins.
    let bytes = bytes.saturating_add(ASIDE).div_ceil(LARGE_PAGE).saturating_mul(LARGE_PAGE) - ASIDE;
    list.reserve_exact(bytes / size_of::<T>() - list.len());
    wish(list);
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn wish<T>(list: &mut Vec<T>) {
    use rustix::mm::{Advice, madvise};

    let begin = list.as_mut_ptr() as usize;
    let first = begin & !(rustix::param::page_size() - 1);
    let bytes = begin - first + list.capacity() * size_of::<T>();
    // SAFETY: the advice is about how memory is laid out, not about what is in it.
    let _ = unsafe { madvise(first as *mut _, bytes, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn wish<T>(_: &mut Vec<T>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_what_was_asked_for_and_nothing_moves_meanwhile() {
        let mut list: Vec<u64> = (0..1_000_000).collect();
        reserve(&mut list, 1);
        assert!(list.capacity() >= 2_000_000);
        let (begin, room) = (list.as_ptr(), list.capacity());
        list.resize(room, 7);
        assert_eq!((list.as_ptr(), list[999_999], list[room - 1]), (begin, 999_999, 7));
        let mut none: Vec<u8> = Vec::new();
        reserve_exact(&mut none, 3);
        assert!(none.capacity() >= 3);
        let mut nothing = vec![(); 5];
        reserve(&mut nothing, 100);
        assert_eq!(nothing.len(), 5);
    }
}
