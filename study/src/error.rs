//! Errors as text, and the one that is not a failure.

use simulate::{sweep::SweepError, whatif::WhatIfError};

/// The error with its causes, each once: some messages already contain their cause and a hint.
pub fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    })
}

/// Whether a study ended because [`Watch::advance`](crate::run::work::Watch::advance) returned false.
pub fn was_stopped(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref() == Some(&SweepError::Stopped)
            || cause.downcast_ref() == Some(&WhatIfError::Sweep(SweepError::Stopped))
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let cause = || anyhow!("no space left");
        assert_eq!(in_words(&cause().context("cannot write x")), "cannot write x: no space left");
        let named = cause().context("cannot write x: no space left; free some");
        assert_eq!(in_words(&named), "cannot write x: no space left; free some");
        let far = Err::<(), _>(named).context("cannot merge");
        let said = far.map_err(|error| in_words(&error));
        assert_eq!(said, Err("cannot merge: cannot write x: no space left; free some".to_owned()));
    }

    #[test]
    fn an_interrupt_is_recognised_whatever_it_interrupted() {
        let stopped = || anyhow::Error::new(SweepError::Stopped);
        assert!(was_stopped(&stopped()) && was_stopped(&stopped().context("cannot simulate x")));
        let whatif = anyhow::Error::new(WhatIfError::Sweep(SweepError::Stopped));
        assert!(was_stopped(&whatif) && !was_stopped(&anyhow!("stopped")));
    }
}
