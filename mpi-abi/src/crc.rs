//! CRC-32 with the polynomial of zlib, eight bytes a step, so that closing a chunk costs microseconds.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let previous = tables[table - 1][byte];
            tables[table][byte] = previous >> 8 ^ tables[0][(previous & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    let byte = |word: u32, shift: u32| (word >> shift & 0xff) as usize;
    let mut crc = !0u32;
    let (words, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in words {
        let low = u32::from_le_bytes([a, b, c, d]) ^ crc;
        let high = u32::from_le_bytes([e, f, g, h]);
        crc = TABLES[7][byte(low, 0)]
            ^ TABLES[6][byte(low, 8)]
            ^ TABLES[5][byte(low, 16)]
            ^ TABLES[4][byte(low, 24)]
            ^ TABLES[3][byte(high, 0)]
            ^ TABLES[2][byte(high, 8)]
            ^ TABLES[1][byte(high, 16)]
            ^ TABLES[0][byte(high, 24)];
    }
    for &value in rest {
        crc = crc >> 8 ^ TABLES[0][byte(crc ^ u32::from(value), 0)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }
}
