//! Memory for large arrays. With 4 KB pages almost every random access misses the TLB, which takes
//! longer than the access itself; so large arrays use 2 MB huge pages, if available. Arrays that are only
//! filled in order gain too: they have one page fault instead of 512. This is advice: it affects only
//! the time.

const LARGE_PAGE: usize = 2 << 20;
/// At least the size of the allocator's header.
const ASIDE: usize = 64;

/// Reserves room for this many more. Like [`Vec::reserve`], at least doubles.
#[inline(always)]
pub fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        grow(list, more);
    }
}

#[cold]
#[inline(never)]
fn grow<T>(list: &mut Vec<T>, more: usize) {
    reserve_exact(list, more.max(list.capacity()));
}

/// Reserves room for this many more, and the rest of the last page.
pub fn reserve_exact<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() >= more {
        return;
    }
    let bytes = list.len().saturating_add(more).saturating_mul(size_of::<T>());
    if bytes < 2 * LARGE_PAGE {
        list.reserve_exact(more);
        return;
    }
    // Only multiples of the huge page size are aligned to huge pages.
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
    // SAFETY: the advice affects how memory is mapped, not its contents.
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
