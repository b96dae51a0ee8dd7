//! Other tools' files: netgauge, LogGOPSim, CSV, JSON, .hlog, .hgrm, told apart by what is in them, and
//! each read as every other, too. What was read can be turned into a trace and read again.

use std::io::Cursor;

use formats::import::{Format, ImportOptions, import_bytes, runs_to_trace};
use trace::{Reader, SourceId, Writer};

const FORMATS: [Option<Format>; 7] = [
    None,
    Some(Format::Netgauge),
    Some(Format::LogGopSim),
    Some(Format::Csv),
    Some(Format::Json),
    Some(Format::HistogramLog),
    Some(Format::Percentiles),
];

pub fn run(data: &[u8]) {
    for format in FORMATS {
        for lenient in [false, true] {
            let options = ImportOptions { lenient, format };
            let Ok(imported) = import_bytes("input", data, &options) else { continue };
            let Ok(trace) = runs_to_trace(&imported.runs) else { continue };
            let mut file = Cursor::new(Vec::new());
            let mut writer = Writer::new(&mut file, &trace.manifest).expect("a manifest");
            for (id, source) in trace.sources.iter().enumerate() {
                writer.add_source(SourceId(id as u32), source).expect("a source");
            }
            for block in &trace.blocks {
                writer.write_block(block).expect("a block");
            }
            writer.finish(trace.trailer).expect("a trailer");
            file.set_position(0);
            let reader = Reader::new(file).expect("what was written can be read");
            let read: Result<Vec<_>, _> = reader.blocks().collect();
            assert_eq!(read.expect("blocks"), trace.blocks);
        }
    }
}
