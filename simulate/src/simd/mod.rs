//! Vector code and prefetching. Loops are compiled for the widest vectors available: compiled for the
//! x86-64 baseline they would use an eighth of the machine.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod list;
mod vector;

pub use list::{List, MOST};
pub use vector::{LANES, Plain, Vector, count_from};

/// Code that can be compiled for several vector widths.
pub trait Kernel {
    type Output;

    /// `V` is the vector type of the current machine, for explicit vector code; plain loops over
    /// arrays are vectorised by the compiler.
    fn run<V: Vector>(self) -> Self::Output;
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,bmi2,popcnt")]
    fn avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<avx512::Avx512>()
    }
    #[target_feature(enable = "avx2,bmi2,popcnt")]
    fn avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<avx2::Avx2>()
    }
    match width() {
        // SAFETY: the machine has these features, as checked above.
        Width::Avx512 => unsafe { avx512(kernel) },
        // SAFETY: as above.
        Width::Avx2 => unsafe { avx2(kernel) },
        Width::Plain => kernel.run::<Plain>(),
    }
}

/// The targets that kernels are compiled for.
#[cfg(any(test, target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    Plain,
    Avx2,
    Avx512,
}

/// The widest target available; in tests limited to the requested one.
#[cfg(target_arch = "x86_64")]
#[inline]
fn width() -> Width {
    let here = if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
    {
        Width::Avx512
    } else if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
    {
        Width::Avx2
    } else {
        Width::Plain
    };
    #[cfg(test)]
    let here = here.min(NARROWER.get());
    here
}

#[cfg(test)]
thread_local! {
    static NARROWER: std::cell::Cell<Width> = const { std::cell::Cell::new(Width::Avx512) };
}

#[cfg(test)]
pub(crate) const WIDTHS: [Width; 3] = [Width::Avx512, Width::Avx2, Width::Plain];

/// Runs a closure as on a machine without wider vectors.
#[cfg(test)]
pub(crate) fn at_most<T>(width: Width, what: impl FnOnce() -> T) -> T {
    let before = NARROWER.replace(width);
    let done = what();
    NARROWER.set(before);
    done
}

#[cfg(not(target_arch = "x86_64"))]
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Plain>()
}

/// Prefetches an element; does nothing if it does not exist.
#[inline(always)]
pub fn prefetch<T>(list: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = list.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads and writes nothing, on memory that is borrowed here; every
        // x86-64 has the instruction.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (list, index);
}
