//! The schedules with known results: `fixtures/goal/loggopsim-cases.json.gz`.

#![allow(dead_code)] // Each test uses a subset.

pub mod reference;

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;
use simulate::{
    event::Schedule,
    goal::{CalcUnit, read_text},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
};

pub struct Case {
    pub name: String,
    pub text: String,
    pub schedule: Schedule,
    pub params: Params,
    pub unit: i64,
    /// In the case's unit.
    pub ends: Vec<i64>,
    pub features: Vec<String>,
    pub sensitive_to: Vec<String>,
    pub noise: Noise,
    pub noisy: bool,
    /// Operations and messages.
    pub events: u64,
}

impl Case {
    pub fn unit(&self) -> CalcUnit {
        CalcUnit::from_ps(self.unit).unwrap()
    }
}

pub fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/goal/loggopsim-cases.json.gz");
    let mut json = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut json).unwrap();
    let list: Vec<Value> = serde_json::from_str(&json).unwrap();
    list.iter().map(case).collect()
}

fn case(json: &Value) -> Case {
    let unit = json["time_unit_ps"].as_i64().unwrap();
    let param = |name: &str| json["params"][name].as_i64().unwrap();
    let strings = |key: &str| {
        let list = json[key].as_array().unwrap().iter();
        list.map(|text| text.as_str().unwrap().to_string()).collect()
    };
    let text = json["goal_text"].as_str().unwrap().to_string();
    let ends: Vec<i64> =
        json["end_times_ns"].as_array().unwrap().iter().map(|end| end.as_i64().unwrap()).collect();
    let noise = json.get("noise").filter(|noise| !noise.is_null());
    Case {
        name: json["name"].as_str().unwrap().to_string(),
        schedule: read_text(text.as_bytes(), CalcUnit::from_ps(unit).unwrap()).unwrap(),
        text,
        params: Params {
            latency: param("L") * unit,
            send_overhead: param("o") * unit,
            recv_overhead: param("o") * unit,
            gap: param("g") * unit,
            gap_per_byte_fs: param("G") * unit * 1_000,
            overhead_per_byte_fs: param("O") * unit * 1_000,
            eager_limit: param("S") as u64,
            sizes: None,
        },
        unit,
        ends,
        features: strings("features"),
        sensitive_to: strings("sensitive_to"),
        noise: noise.map_or(Noise::none(), noise_of),
        noisy: noise.is_some(),
        events: json["events"].as_u64().unwrap(),
    }
}

fn noise_of(json: &Value) -> Noise {
    let trace = json["trace_ns"].as_array().unwrap().iter();
    let ps = |value: &Value| value.as_i64().unwrap() * 1_000;
    let timeline = Timeline::new(trace.map(|detour| (ps(&detour[0]), ps(&detour[1]))), 0).unwrap();
    let offsets = json["rank_offsets_ns"].as_array().unwrap().iter().map(ps).collect();
    Noise::new(vec![timeline], Model::LogGopSim, Offsets::Given(offsets)).unwrap().repeating(true)
}
