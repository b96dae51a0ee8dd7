//! Runs a loop compiled for the widest vectors this machine has. The loops are plain Rust; compiled
//! for the baseline of x86-64 they would use an eighth of the machine.

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
