use anyhow::Result;
pub fn run(_: &crate::workspace::Workspace, _: bool) -> Result<bool> {
    Ok(true)
}
