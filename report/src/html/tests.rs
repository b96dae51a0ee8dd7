//! Only the page's own script may run.

use base64::Engine;

use super::{SCRIPT, SCRIPT_SHA256};

#[test]
fn the_policy_names_exactly_this_script() {
    let hash = base64::engine::general_purpose::STANDARD.encode(sha256(SCRIPT.as_bytes()));
    assert_eq!(SCRIPT_SHA256, hash, "the script changed: update SCRIPT_SHA256");
}

#[test]
fn the_script_cannot_end_its_element_nor_reach_out() {
    for unwanted in
        ["</script", "<!--", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("]
    {
        assert!(!SCRIPT.contains(unwanted), "{unwanted}");
    }
    assert!(!super::STYLE.contains("</style") && !super::STYLE.contains("url("));
}

#[test]
fn the_hash_is_sha256() {
    let of_abc = sha256(b"abc");
    assert_eq!(of_abc[..4], [0xba, 0x78, 0x16, 0xbf]);
    assert_eq!(of_abc[28..], [0xf2, 0x00, 0x15, 0xad]);
}

/// FIPS 180-4, only for the test above.
fn sha256(message: &[u8]) -> [u8; 32] {
    let primes = (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    let primes: Vec<u64> = primes.take(64).collect();
    // The first 32 bits of the fractional part of a root, by bisection over whole numbers.
    let root = |n: u64, power: u32| {
        let (mut low, mut high) = (0u128, 1u128 << 40);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let fits = middle.pow(power) <= u128::from(n) << (32 * power);
            if fits { low = middle } else { high = middle }
        }
        low as u32
    };
    let k: Vec<u32> = primes.iter().map(|&p| root(p, 3)).collect();
    let mut state: Vec<u32> = primes[..8].iter().map(|&p| root(p, 2)).collect();
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let word = |c: &[u8]| u32::from_be_bytes([c[0], c[1], c[2], c[3]]);
        let mut w: Vec<u32> = block.chunks(4).map(word).collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let mut v = state.clone();
        for i in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let one = [s1, choice, k[i], w[i]].iter().fold(v[7], |a, b| a.wrapping_add(*b));
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let two = s0.wrapping_add((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(one);
            v[0] = one.wrapping_add(two);
        }
        for (sum, part) in state.iter_mut().zip(v) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut out = [0; 32];
    for (bytes, word) in out.chunks_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}
