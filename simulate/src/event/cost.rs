//! Caches message costs: a schedule has few sizes, and the division in the computation is the most
//! expensive part of a message.

use crate::loggops::{Local, MessageCost, Params, ParamsError};

const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(crate) struct Costs {
    network: Network,
    /// Between ranks of one node, if that is another network.
    local: Option<(Local, Network)>,
}

#[derive(Debug)]
struct Network {
    params: Params,
    known: Box<[(u64, MessageCost); REMEMBERED]>,
}

impl Costs {
    pub fn new(params: &Params, local: Option<Local>) -> Result<Costs, ParamsError> {
        let local = match local {
            Some(local) => Some((local, Network::new(&local.params)?)),
            None => None,
        };
        Ok(Costs { network: Network::new(params)?, local })
    }

    /// The cost of a message between these ranks, and whether they are on one node with a network of its
    /// own.
    #[inline]
    pub fn of(
        &mut self,
        bytes: u64,
        from: u32,
        to: u32,
    ) -> Result<(MessageCost, bool), ParamsError> {
        match &mut self.local {
            Some((local, network)) if local.is_between(from.into(), to.into()) => {
                Ok((network.of(bytes)?, true))
            }
            _ => Ok((self.network.of(bytes)?, false)),
        }
    }

    /// Whether messages of this size wait for their receivers, at least on one of the networks.
    pub fn may_wait(&mut self, bytes: u64) -> bool {
        let waits = |network: &mut Network| network.of(bytes).is_ok_and(|cost| cost.rendezvous);
        waits(&mut self.network) || self.local.as_mut().is_some_and(|(_, local)| waits(local))
    }
}

impl Network {
    fn new(params: &Params) -> Result<Network, ParamsError> {
        params.check()?;
        // Every entry holds a size that maps to it or cannot match.
        let filler = params.message(0)?;
        Ok(Network { params: *params, known: Box::new([(0, filler); REMEMBERED]) })
    }

    #[inline]
    fn of(&mut self, bytes: u64) -> Result<MessageCost, ParamsError> {
        let place = (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        if self.known[place].0 != bytes {
            self.compute(place, bytes)?;
        }
        Ok(self.known[place].1)
    }

    #[cold]
    fn compute(&mut self, place: usize, bytes: u64) -> Result<(), ParamsError> {
        self.known[place] = (bytes, self.params.marked_message(bytes)?);
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
            let mut costs = Network::new(&params).unwrap();
            for bytes in sizes {
                prop_assert_eq!(costs.of(bytes).unwrap(), params.message(bytes).unwrap());
            }
        }
    }
}
