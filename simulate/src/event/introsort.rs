//! The order in which LogGOPSim leaves equal elements: it sorts the operations released together with
//! C++'s `std::sort`, which keeps up to 16 equal elements in order and scrambles more (quirk Q3). This
//! is that algorithm as in GCC's library, step by step: introsort with the median of three, heap sort
//! at too great a depth, insertion sort at the end.

const THRESHOLD: usize = 16;

pub(crate) fn sort<T: Copy, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    let less = |a: &T, b: &T| key(a) < key(b);
    if items.len() > 1 {
        introsort(items, 2 * items.len().ilog2(), &less);
        let guarded = items.len().min(THRESHOLD);
        insertion(&mut items[..guarded], &less);
        for at in guarded..items.len() {
            linear_insert(items, at, &less);
        }
    }
}

fn introsort<T: Copy>(items: &mut [T], mut depth: u32, less: &impl Fn(&T, &T) -> bool) {
    let mut end = items.len();
    while end > THRESHOLD {
        if depth == 0 {
            heap_sort(&mut items[..end], less);
            return;
        }
        depth -= 1;
        let cut = partition(&mut items[..end], less);
        introsort(&mut items[cut..end], depth, less);
        end = cut;
    }
}

fn partition<T: Copy>(items: &mut [T], less: &impl Fn(&T, &T) -> bool) -> usize {
    let (a, b, c) = (1, items.len() / 2, items.len() - 1);
    let before = |x: usize, y: usize| less(&items[x], &items[y]);
    let median = if before(a, b) {
        if before(b, c) {
            b
        } else if before(a, c) {
            c
        } else {
            a
        }
    } else if before(a, c) {
        a
    } else if before(b, c) {
        c
    } else {
        b
    };
    items.swap(0, median);
    let (mut first, mut last) = (1, items.len());
    loop {
        while less(&items[first], &items[0]) {
            first += 1;
        }
        last -= 1;
        while less(&items[0], &items[last]) {
            last -= 1;
        }
        if first >= last {
            return first;
        }
        items.swap(first, last);
        first += 1;
    }
}

fn insertion<T: Copy>(items: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    for at in 1..items.len() {
        if less(&items[at], &items[0]) {
            items[..=at].rotate_right(1);
        } else {
            linear_insert(items, at, less);
        }
    }
}

fn linear_insert<T: Copy>(items: &mut [T], at: usize, less: &impl Fn(&T, &T) -> bool) {
    let item = items[at];
    let mut hole = at;
    // There is always an element not greater further down; the bound is a safeguard.
    while hole > 0 && less(&item, &items[hole - 1]) {
        items[hole] = items[hole - 1];
        hole -= 1;
    }
    items[hole] = item;
}

fn heap_sort<T: Copy>(items: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    let len = items.len();
    for parent in (0..=(len - 2) / 2).rev() {
        let item = items[parent];
        sift(items, parent, item, less);
    }
    for last in (1..len).rev() {
        let item = items[last];
        items[last] = items[0];
        sift(&mut items[..last], 0, item, less);
    }
}

/// Sifts the hole down along the greater children, then the item up from there.
fn sift<T: Copy>(items: &mut [T], top: usize, item: T, less: &impl Fn(&T, &T) -> bool) {
    let len = items.len();
    let mut hole = top;
    let mut child = hole;
    while child < (len - 1) / 2 {
        child = 2 * (child + 1);
        if less(&items[child], &items[child - 1]) {
            child -= 1;
        }
        items[hole] = items[child];
        hole = child;
    }
    if len.is_multiple_of(2) && child == (len - 2) / 2 {
        child = 2 * (child + 1);
        items[hole] = items[child - 1];
        hole = child - 1;
    }
    while hole > top {
        let parent = (hole - 1) / 2;
        if !less(&items[parent], &item) {
            break;
        }
        items[hole] = items[parent];
        hole = parent;
    }
    items[hole] = item;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear_congruence(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    }

    fn checksum(items: &[(u64, u32)]) -> u64 {
        items.iter().fold(0u64, |sum, item| sum.wrapping_mul(31).wrapping_add(u64::from(item.1)))
    }

    /// The result of GCC 12's `std::sort` for n elements of k kinds: the first three and a checksum.
    #[test]
    fn equal_elements_end_up_where_the_peer_has_them() {
        let known = [
            (17, 1, [8, 16, 15], 18000265354157173000),
            (17, 3, [1, 16, 5], 2813257840429388404),
            (18, 1, [9, 17, 16], 12399247100054497815),
            (40, 3, [17, 34, 29], 2261394144994196332),
            (63, 1, [47, 32, 33], 8471078297073876447),
            (63, 3, [34, 20, 21], 8781667332329041205),
            (64, 1, [48, 33, 34], 17834193342627577888),
            (1000, 1, [672, 657, 658], 13354114309432557452),
            (1000, 3, [492, 531, 526], 2214324986023642630),
        ];
        for (n, kinds, first, sum) in known {
            let mut state = n * 1000 + kinds;
            let mut items: Vec<(u64, u32)> =
                (0..n as u32).map(|id| (linear_congruence(&mut state) % kinds, id)).collect();
            sort(&mut items, |item| item.0);
            assert_eq!([0, 1, 2].map(|at: usize| items[at].1), first, "{n} of {kinds}");
            assert_eq!(checksum(&items), sum, "{n} of {kinds}");
        }
    }

    /// An input that defeats the median of three and triggers heap sort.
    #[test]
    fn it_goes_over_to_heap_sort_where_the_peer_does() {
        for (n, sum) in [(2000, 8598314174080173558), (5000, 1506698876981445986)] {
            let mut items: Vec<(u64, u32)> = (0..n).map(|id| (0, id)).collect();
            let half = n as usize / 2;
            for i in 1..=half {
                if i % 2 == 1 {
                    items[i - 1].0 = i as u64;
                    items[i].0 = (half + i) as u64;
                }
                items[half + i - 1].0 = 2 * i as u64;
            }
            sort(&mut items, |item| item.0 / 64);
            assert_eq!(checksum(&items), sum);
        }
    }

    #[test]
    fn up_to_sixteen_keep_their_order() {
        let mut items: Vec<(u64, u32)> = (0..16).map(|id| (u64::from(id % 3), id)).collect();
        let mut stable = items.clone();
        stable.sort_by_key(|item| item.0);
        sort(&mut items, |item| item.0);
        assert_eq!(items, stable);
    }
}
