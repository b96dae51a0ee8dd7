//! `--rendezvous`: the protocol for large messages.

use clap::ValueEnum;
use simulate::event::Rendezvous;

pub use study::network::parse;

/// The rendezvous protocol for messages larger than S bytes; the default is
/// [`study::network::RENDEZVOUS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RendezvousName {
    /// Request, acknowledgement once the receive is posted, then the payload
    #[default]
    Handshake,
    /// Both sides complete once the message has arrived and the receive is posted, as in the 2010 study
    ClosedForm,
}

impl From<RendezvousName> for Rendezvous {
    fn from(name: RendezvousName) -> Rendezvous {
        match name {
            RendezvousName::Handshake => Rendezvous::Handshake,
            RendezvousName::ClosedForm => Rendezvous::ClosedForm,
        }
    }
}
