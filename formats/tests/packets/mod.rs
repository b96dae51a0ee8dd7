//! Reads a Perfetto trace back, by the field numbers of its published messages.

use std::collections::{BTreeMap, HashMap};

pub(crate) struct Slice {
    /// From the start of the recording.
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) numbers: BTreeMap<String, u64>,
}

pub(crate) struct Trace {
    /// By the names of the tracks, outermost first.
    pub(crate) slices: HashMap<Vec<String>, Vec<Slice>>,
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Bytes(_) => panic!("bytes where a number belongs"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number(_) => panic!("a number where bytes belong"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(content)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn first<'a, 'b>(fields: &'b [(u64, Value<'a>)], field: u64) -> Option<&'b Value<'a>> {
    fields.iter().find(|(number, _)| *number == field).map(|(_, value)| value)
}

#[derive(Default)]
struct Interned {
    categories: HashMap<u64, String>,
    names: HashMap<u64, String>,
    annotations: HashMap<u64, String>,
}

pub(crate) fn read(bytes: &[u8]) -> Trace {
    let mut interned = Interned::default();
    let mut tracks: HashMap<u64, (String, Option<u64>)> = HashMap::new();
    let mut events = Vec::new();
    let mut epoch = None;
    for (number, packet) in fields(bytes) {
        assert_eq!(number, 1, "a trace holds packets and nothing else");
        let packet = fields(packet.bytes());
        if let Some(snapshot) = first(&packet, 6) {
            let snapshot = fields(snapshot.bytes());
            assert_eq!(first(&snapshot, 2).unwrap().number(), 3, "CLOCK_MONOTONIC");
            let clocks = snapshot.iter().filter(|(field, _)| *field == 1);
            let mut clocks = clocks.map(|(_, clock)| fields(clock.bytes()));
            let monotonic = clocks.find(|clock| first(clock, 1).unwrap().number() == 3);
            epoch = monotonic.map(|clock| first(&clock, 2).unwrap().number());
            continue;
        }
        assert_eq!(first(&packet, 10).unwrap().number(), 1, "all on one sequence");
        if let Some(data) = first(&packet, 12) {
            assert_eq!(first(&packet, 13).unwrap().number(), 1, "names start anew");
            for (kind, entry) in fields(data.bytes()) {
                let entry = fields(entry.bytes());
                let table = match kind {
                    1 => &mut interned.categories,
                    2 => &mut interned.names,
                    3 => &mut interned.annotations,
                    other => panic!("interned {other}"),
                };
                let (id, name) = (first(&entry, 1).unwrap(), first(&entry, 2).unwrap());
                table.insert(id.number(), name.text());
            }
        }
        if let Some(track) = first(&packet, 60) {
            let track = fields(track.bytes());
            let parent = first(&track, 5).map(Value::number);
            let uuid = first(&track, 1).unwrap().number();
            let before = tracks.insert(uuid, (first(&track, 2).unwrap().text(), parent));
            assert!(before.is_none(), "a track is described once");
        }
        if let Some(event) = first(&packet, 11) {
            assert_eq!(first(&packet, 13).unwrap().number(), 2, "needs the names");
            let at = first(&packet, 8).unwrap().number() - epoch.expect("clocks come first");
            events.push((at, event.bytes()));
        }
    }
    // As the importer does: by time, and in file order if equal.
    events.sort_by_key(|(at, _)| *at);
    slices(&events, &tracks, &interned)
}

fn slices(
    events: &[(u64, &[u8])],
    tracks: &HashMap<u64, (String, Option<u64>)>,
    interned: &Interned,
) -> Trace {
    let path = |uuid: u64| {
        let mut path = Vec::new();
        let mut next = Some(uuid);
        while let Some(uuid) = next {
            let (name, parent) = tracks.get(&uuid).expect("tracks are described before use");
            path.insert(0, name.clone());
            next = *parent;
        }
        path
    };
    let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
    let mut trace = Trace { slices: HashMap::new() };
    for &(at, event) in events {
        let event = fields(event);
        let track = first(&event, 11).unwrap().number();
        let kind = first(&event, 9).unwrap().number();
        if kind == 2 {
            let mut slice =
                open.get_mut(&track).and_then(Vec::pop).expect("an end has a beginning");
            slice.length = at - slice.start;
            trace.slices.entry(path(track)).or_default().push(slice);
            continue;
        }
        let annotations = event.iter().filter(|(field, _)| *field == 4);
        let numbers = annotations.map(|(_, annotation)| {
            let annotation = fields(annotation.bytes());
            let name = &interned.annotations[&first(&annotation, 1).unwrap().number()];
            (name.clone(), first(&annotation, 3).unwrap().number())
        });
        let slice = Slice {
            start: at,
            length: 0,
            name: interned.names[&first(&event, 10).unwrap().number()].clone(),
            category: interned.categories[&first(&event, 3).unwrap().number()].clone(),
            numbers: numbers.collect(),
        };
        match kind {
            1 => open.entry(track).or_default().push(slice),
            3 => trace.slices.entry(path(track)).or_default().push(slice),
            other => panic!("event type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "every beginning has an end");
    trace
}
