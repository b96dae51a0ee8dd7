//! Everything that is done with a trace from somebody else.

use std::io::Cursor;

use analysis::{Contents, Summariser, views::Viewer};
use trace::{
    Reader,
    export::{ExportError, ExportFormat, export},
};

pub fn use_everything(bytes: &[u8]) {
    let Ok(reader) = Reader::new(Cursor::new(bytes)) else { return };
    let mut summariser = Summariser::new();
    for block in reader.blocks().flatten() {
        summariser.add(&block, reader.sources());
    }
    let contents = Contents {
        manifest: reader.manifest(),
        sources: reader.sources(),
        lanes: reader.lanes(),
        trailer: reader.trailer(),
        truncated: reader.truncated(),
    };
    let (summary, _) = summariser.finish_with_costs(&contents);
    let ends = reader
        .block_infos()
        .fold((u64::MAX, 0), |(from, to), info| (from.min(info.first_ns), to.max(info.last_ns)));
    let ends = if ends.0 > ends.1 { (0, 0) } else { ends };
    let mut viewer = Viewer::new(&summary, &contents, ends);
    for block in reader.blocks().flatten() {
        viewer.add(&block);
    }
    let _ = viewer.finish();
    let text = report::text(&summary, report::Options::default());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a control character");
    report::json_text(&summary).expect("a summary is JSON");
    let _ = report::openmetrics(&summary, report::Bounds { sources: 20 });
    for format in ExportFormat::ALL {
        let written = export(&reader, format, None, &mut std::io::sink());
        assert!(!matches!(written, Err(ExportError::Io(_))), "a sink takes everything");
    }
}
