//! What this host lacks. Whatever needs it is skipped by name; every other error is a failure.

use std::{error, fmt};

/// What is missing, and the command that installs it.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Missing {}

/// `Ok(Err(reason))` if the host lacks something; any other error stays one.
pub fn or_skip<T>(result: anyhow::Result<T>) -> anyhow::Result<Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.is::<Missing>() => Ok(Err(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn only_what_the_host_lacks_is_skipped() {
        let failed = || Err::<(), _>(anyhow!("exit status 2"));
        assert!(or_skip(failed()).is_err());
        assert!(or_skip(failed().context("cannot make the root file system")).is_err());
        let missing = failed().context(Missing("qemu not found".to_owned()));
        let reason = or_skip(missing.context("cannot boot")).unwrap().unwrap_err();
        assert_eq!(reason, "cannot boot: qemu not found: exit status 2");
        assert_eq!(or_skip(Ok(1)).unwrap(), Ok(1));
    }
}
