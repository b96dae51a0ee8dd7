//! Caches message costs: a schedule has few sizes, and the division in the computation is the most
//! expensive part of a message.

use crate::loggops::{MessageCost, Params, ParamsError};

const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(crate) struct Costs {
    params: Params,
    known: Box<[(u64, MessageCost); REMEMBERED]>,
}

impl Costs {
    pub fn new(params: &Params) -> Result<Costs, ParamsError> {
        params.check()?;
        // Every entry holds a size that maps to it or cannot match.
        let filler = params.message(0)?;
        Ok(Costs { params: *params, known: Box::new([(0, filler); REMEMBERED]) })
    }

    #[inline]
    pub fn of(&mut self, bytes: u64) -> Result<MessageCost, ParamsError> {
        let place = (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        if self.known[place].0 != bytes {
            self.compute(place, bytes)?;
        }
        Ok(self.known[place].1)
    }

    #[cold]
    fn compute(&mut self, place: usize, bytes: u64) -> Result<(), ParamsError> {
        self.known[place] = (bytes, self.params.message(bytes)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn remembered_costs_are_those_of_the_model(sizes in prop::collection::vec(0u64..200, 1..300)) {
            let params = Params { overhead_per_byte_fs: 1_700, ..Params::named("cnl").unwrap() };
            let mut costs = Costs::new(&params).unwrap();
            for bytes in sizes {
                prop_assert_eq!(costs.of(bytes).unwrap(), params.message(bytes).unwrap());
            }
        }
    }
}
