//! An observer of a run of the exact rules. The engine is compiled once without one, in which case the
//! calls vanish, and once for the [`Recorder`](super::recorder::Recorder).

use crate::loggops::MessageCost;

use super::log::What;

/// A piece of work on a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub op: u32,
    pub rank: u32,
    /// Slots of its CPU and NIC.
    pub cpu: usize,
    pub nic: usize,
    pub start: i64,
    pub end: i64,
    pub work: i64,
}

pub(crate) trait Watch {
    /// A point in time that others may follow from.
    type Moment: Copy;

    /// A dependency of this operation was satisfied then.
    fn released(&mut self, op: u32, by: Self::Moment);

    /// A receive waits for its message from this moment.
    fn posted(&mut self, op: u32) -> Self::Moment;

    /// Begin and end.
    fn calc(&mut self, piece: Piece) -> (Self::Moment, Self::Moment);

    /// A message, or the request or the payload of one, was handed to the NIC; begin and end.
    fn sent(
        &mut self,
        what: What,
        piece: Piece,
        cost: &MessageCost,
    ) -> (Self::Moment, Self::Moment);

    /// The last byte of the payload of this send has left.
    fn left(&mut self, op: u32, rank: u32, cost: &MessageCost) -> Self::Moment;

    /// The receive has acknowledged the request of the send.
    fn granted(&mut self, receive: u32, send: u32, latency: i64);

    /// The end of a receive.
    fn received(&mut self, piece: Piece, send: u32, cost: &MessageCost) -> Self::Moment;

    /// A large send ended with its receive.
    fn ended(&mut self, send: u32, rank: u32, at: Self::Moment);
}

/// No observer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nobody;

impl Watch for Nobody {
    type Moment = ();

    #[inline(always)]
    fn released(&mut self, _: u32, (): ()) {}

    #[inline(always)]
    fn posted(&mut self, _: u32) {}

    #[inline(always)]
    fn calc(&mut self, _: Piece) -> ((), ()) {
        ((), ())
    }

    #[inline(always)]
    fn sent(&mut self, _: What, _: Piece, _: &MessageCost) -> ((), ()) {
        ((), ())
    }

    #[inline(always)]
    fn left(&mut self, _: u32, _: u32, _: &MessageCost) {}

    #[inline(always)]
    fn granted(&mut self, _: u32, _: u32, _: i64) {}

    #[inline(always)]
    fn received(&mut self, _: Piece, _: u32, _: &MessageCost) {}

    #[inline(always)]
    fn ended(&mut self, _: u32, _: u32, (): ()) {}
}
