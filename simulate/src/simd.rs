//! What plain Rust does not say to the machine. Loops compiled for the widest vectors there are:
//! compiled for the baseline of x86-64 they would use an eighth of the machine. And what will be
//! needed soon, so that the cache can have it by then.

/// Something that can be compiled several times over.
pub trait Kernel {
    type Output;
    fn run(self) -> Self::Output;
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,bmi2")]
    fn avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
    #[target_feature(enable = "avx2,bmi2")]
    fn avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
    let avx512_here = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("bmi2");
    if avx512_here {
        // SAFETY: the machine has these features, as was just asked.
        unsafe { avx512(kernel) }
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
        // SAFETY: as above.
        unsafe { avx2(kernel) }
    } else {
        kernel.run()
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Elements by their indices, without asking for each whether it is there: vectors cannot. Panics
/// where one is not.
#[inline(always)]
pub fn gather<T: Copy, const N: usize>(list: &[T], indices: &[u32; N], found: &mut [T; N]) {
    let most = indices.iter().fold(0, |most, &index| index.max(most));
    assert!((most as usize) < list.len(), "an index beyond the list");
    for (found, &index) in found.iter_mut().zip(indices) {
        // SAFETY: the largest of them is below the length.
        #[allow(unsafe_code)]
        let element = unsafe { list.get_unchecked(index as usize) };
        *found = *element;
    }
}

/// This element will be needed soon; nothing happens where there is none.
#[inline(always)]
pub fn prefetch<T>(list: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = list.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads and writes nothing, about memory that is borrowed here; every
        // x86-64 has the instruction.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (list, index);
}
