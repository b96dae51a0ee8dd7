//! Reads GOAL text.

use std::io::BufRead;

use super::{
    CalcUnit,
    cursor::{Cursor, Result},
    error::{GoalError, SyntaxError},
    labels::{self, RankLabels},
    lines::Lines,
};
use crate::{
    event::{BuildError, OpId, Schedule, ScheduleBuilder, WILDCARD},
    time::Time,
};

pub fn read_text(
    mut input: impl BufRead,
    unit: CalcUnit,
) -> std::result::Result<Schedule, GoalError> {
    read(&mut input, unit)
}

/// Not generic, so that it is compiled here, with this crate's optimisations.
fn read(input: &mut dyn BufRead, unit: CalcUnit) -> std::result::Result<Schedule, GoalError> {
    let mut lines = Lines::new(input);
    let mut reader =
        Reader { unit, labels: RankLabels::default(), ranks: 0, rank: 0, inside: false };
    let mut builder = None;
    let mut in_comment = false;
    while let Some((number, line)) = lines.next()? {
        let mut cursor = Cursor::new(line, number, &mut in_comment);
        if !cursor.at_end() {
            reader.statement(&mut cursor, &mut in_comment, &mut builder)?;
        }
    }
    reader.finish(builder, lines.number(), in_comment)
}

struct Reader {
    unit: CalcUnit,
    labels: RankLabels,
    ranks: u32,
    /// The next rank, or the current one.
    rank: u32,
    inside: bool,
}

/// An operation's attributes.
struct Attributes {
    tag: u32,
    cpu: u8,
    nic: u8,
}

impl Reader {
    fn statement(
        &mut self,
        cursor: &mut Cursor,
        comment: &mut bool,
        builder: &mut Option<ScheduleBuilder>,
    ) -> Result<()> {
        let Some(builder) = builder else {
            *builder = self.header(cursor, comment)?;
            return Ok(());
        };
        if self.inside {
            self.inside(cursor, comment, builder)?;
        } else {
            self.outside(cursor, comment, builder)?;
        }
        match builder.error() {
            Some(error) => Err(cursor.error_at(usize::MAX, error.to_string())),
            None => end_of_line(cursor, comment),
        }
    }

    /// `num_ranks 4`; None if the first line holds only a byte order mark.
    fn header(
        &mut self,
        cursor: &mut Cursor,
        comment: &mut bool,
    ) -> Result<Option<ScheduleBuilder>> {
        if cursor.skip_byte_order_mark() {
            cursor.skip(comment);
            if cursor.at_end() {
                return Ok(None);
            }
        }
        if cursor.word() != b"num_ranks" {
            return Err(cursor
                .error_at(usize::MAX, "expected the number of ranks")
                .hint("as in `num_ranks 4`"));
        }
        cursor.skip(comment);
        self.ranks = small(cursor, "the number of ranks")?;
        if let Some(error) = cursor.not_whole(cursor.mark()) {
            return Err(error.hint("as in `num_ranks 4`"));
        }
        let builder = ScheduleBuilder::new(self.ranks);
        if let Some(error) = builder.error() {
            return Err(cursor.error_at(usize::MAX, error.to_string()));
        }
        end_of_line(cursor, comment)?;
        Ok(Some(builder))
    }

    /// `rank 3 {`
    fn outside(
        &mut self,
        cursor: &mut Cursor,
        comment: &mut bool,
        builder: &mut ScheduleBuilder,
    ) -> Result<()> {
        let word = cursor.word();
        if word != b"rank" {
            let error = cursor.error_at(word.len(), "expected `rank`");
            return Err(if self.rank < self.ranks {
                error.hint(format!("operations belong in `rank {} {{` ... `}}`", self.rank))
            } else {
                error.hint(format!("nothing may follow the last of {} ranks", self.ranks))
            });
        }
        cursor.skip(comment);
        let mark = cursor.mark();
        let rank = cursor.number("the rank")?;
        if rank != u64::from(self.rank) || self.rank >= self.ranks {
            if let Some(error) = cursor.not_whole(cursor.mark()) {
                return Err(error);
            }
            let (problem, hint) = if rank >= u64::from(self.ranks) {
                let ranks = self.ranks;
                (format!("rank {rank} does not exist"), format!("{ranks} ranks, from 0"))
            } else {
                (format!("rank {rank} is out of order"), format!("expected rank {}", self.rank))
            };
            return Err(cursor.error_from(mark, problem).hint(hint));
        }
        cursor.skip(comment);
        if !cursor.eat(b'{') {
            let error = cursor.not_whole(cursor.mark());
            return Err(error.unwrap_or_else(|| cursor.expected("`{`")));
        }
        builder.begin_rank();
        self.labels.clear();
        self.inside = true;
        Ok(())
    }

    fn inside(
        &mut self,
        cursor: &mut Cursor,
        comment: &mut bool,
        builder: &mut ScheduleBuilder,
    ) -> Result<()> {
        if cursor.eat(b'}') {
            self.inside = false;
            self.rank += 1;
            return Ok(());
        }
        let mark = cursor.mark();
        let word = cursor.word();
        if word.is_empty() {
            return Err(cursor.expected("an operation, a dependency or `}`"));
        }
        cursor.skip(comment);
        if cursor.eat(b':') {
            if !word[0].is_ascii_alphabetic() {
                return Err(cursor.error_from(mark, "a label must start with a letter"));
            }
            cursor.skip(comment);
            let kind_mark = cursor.mark();
            let kind = cursor.word();
            let op = self.operation(word, kind, kind_mark, cursor, comment, builder)?;
            if !self.labels.insert(word, op) {
                let problem = format!("duplicate label {}", String::from_utf8_lossy(word));
                let hint = "labels must be unique within a rank";
                return Err(cursor.error_from(mark, problem).hint(hint));
            }
            // The default label need not be stored. Words are ASCII.
            if labels::number(word) != Some(op.0 as usize + 1) {
                builder.label_last(std::str::from_utf8(word).unwrap_or(""));
            }
            return Ok(());
        }
        match cursor.peek() {
            Some(b'r' | b'i') => self.dependency(word, mark, cursor, comment, builder),
            _ => self.operation(b"", word, mark, cursor, comment, builder).map(|_| ()),
        }
    }

    /// `l2 requires l1`, starting at the second word.
    fn dependency(
        &self,
        label: &[u8],
        mark: usize,
        cursor: &mut Cursor,
        comment: &mut bool,
        builder: &mut ScheduleBuilder,
    ) -> Result<()> {
        let relation = cursor.word();
        let start = match relation {
            b"requires" => false,
            b"irequires" => true,
            b"recv" => return Err(no_colon(label, mark, relation, cursor)),
            _ => {
                return Err(cursor.error_at(relation.len(), "expected `requires` or `irequires`"));
            }
        };
        let op = self.look_up(label, mark, cursor)?;
        cursor.skip(comment);
        let mark = cursor.mark();
        let label = cursor.word();
        if label.is_empty() {
            return Err(cursor.expected("a label"));
        }
        let on = self.look_up(label, mark, cursor)?;
        if start {
            builder.irequires(op, on);
        } else {
            builder.requires(op, on);
        }
        Ok(())
    }

    fn look_up(&self, label: &[u8], mark: usize, cursor: &Cursor) -> Result<OpId> {
        self.labels.get(label).ok_or_else(|| {
            let label = String::from_utf8_lossy(label);
            cursor
                .error_from(mark, format!("undefined label {label}"))
                .hint("define both operations before the dependency")
        })
    }

    /// Starting after its kind; `label` is empty if it has none.
    fn operation(
        &self,
        label: &[u8],
        kind: &[u8],
        mark: usize,
        cursor: &mut Cursor,
        comment: &mut bool,
        builder: &mut ScheduleBuilder,
    ) -> Result<OpId> {
        // Words of known length are compared as integers.
        match <&[u8; 4]>::try_from(kind) {
            Ok(b"calc") => {
                cursor.skip(comment);
                let mark = cursor.mark();
                let units = cursor.number("a time")?;
                let Some(ps) = self.unit.to_ps(units) else {
                    return Err(cursor
                        .error_from(mark, format!("a calc of {units} units exceeds 13 days"))
                        .hint(format!("the unit is {}", Time(self.unit.ps()))));
                };
                let attributes = attributes(cursor, comment, false)?;
                Ok(builder.calc(ps, attributes.cpu))
            }
            Ok(b"send") => {
                let bytes = bytes(cursor, comment)?;
                keyword(cursor, comment, b"to")?;
                let to = self.peer(label, cursor, builder)?;
                let Attributes { tag, cpu, nic } = attributes(cursor, comment, true)?;
                Ok(builder.send(bytes, to, tag, cpu, nic))
            }
            Ok(b"recv") => {
                let bytes = bytes(cursor, comment)?;
                keyword(cursor, comment, b"from")?;
                let from = match cursor.peek() {
                    Some(b'-') => wildcard_or(cursor, "a rank")?,
                    _ => self.peer(label, cursor, builder)?,
                };
                let Attributes { tag, cpu, nic } = attributes(cursor, comment, true)?;
                Ok(builder.recv(bytes, from, tag, cpu, nic))
            }
            _ => Err(match cursor.word() {
                // After a label and its colon there is no second word here.
                word @ (b"send" | b"calc") => no_colon(kind, mark, word, cursor),
                _ => cursor
                    .error_from(mark, "expected `send`, `recv` or `calc`")
                    .hint("`l1: send 8b to 3 tag 1`, `l2: calc 100`, `l2 requires l1`"),
            }),
        }
    }

    /// The source or target of a message.
    fn peer(&self, label: &[u8], cursor: &mut Cursor, builder: &ScheduleBuilder) -> Result<u32> {
        let mark = cursor.mark();
        let peer = cursor.number("a rank")?;
        if peer < u64::from(self.ranks) {
            return Ok(peer as u32);
        }
        Err(cursor.not_whole(cursor.mark()).unwrap_or_else(|| {
            let (rank, index) = builder.here();
            let label = match label {
                b"" => String::new(),
                label => format!(" ({})", String::from_utf8_lossy(label)),
            };
            let place = format!("rank {rank}, operation {index}{label}");
            cursor
                .error_from(mark, format!("{place}: rank {peer} does not exist"))
                .hint(format!("{} ranks, from 0", self.ranks))
        }))
    }

    fn finish(
        self,
        builder: Option<ScheduleBuilder>,
        last: u64,
        in_comment: bool,
    ) -> std::result::Result<Schedule, GoalError> {
        let at_end = |problem: &str| SyntaxError {
            line: last.max(1),
            column: 1,
            problem: problem.to_string(),
            hint: None,
        };
        if in_comment {
            return Err(at_end("unexpected end of file in a comment").into());
        }
        if self.inside {
            return Err(at_end("unexpected end of file in a rank").hint("missing `}`").into());
        }
        let Some(builder) = builder else {
            return Err(at_end("the file is empty").hint("expected `num_ranks 4`").into());
        };
        builder.finish().map_err(|error| match error {
            BuildError::MissingRank { .. } => at_end(&error.to_string()).into(),
            error => GoalError::Build(error),
        })
    }
}

/// `l1 recv 8b from 0`: neither a dependency nor an operation.
fn no_colon(label: &[u8], mark: usize, kind: &[u8], cursor: &Cursor) -> SyntaxError {
    let [name, kind] = [label, kind].map(String::from_utf8_lossy);
    cursor
        .error_from(mark + label.len(), format!("expected `:` after the label {name}"))
        .hint(format!("`{name}: {kind} ...`"))
}

fn end_of_line(cursor: &mut Cursor, comment: &mut bool) -> Result<()> {
    cursor.skip(comment);
    if cursor.at_end() { Ok(()) } else { Err(cursor.expected("end of line")) }
}

/// ` 10b `, or `10 b`.
fn bytes(cursor: &mut Cursor, comment: &mut bool) -> Result<u64> {
    cursor.skip(comment);
    let bytes = cursor.number("a number of bytes")?;
    cursor.skip(comment);
    if !cursor.eat(b'b') {
        // `8kB` is a number with an unknown unit.
        let part = matches!(cursor.peek(), Some(b'.' | b'e' | b'E' | b'x' | b'X'));
        let error = if part { cursor.not_whole(cursor.mark()) } else { None };
        let error = error.unwrap_or_else(|| cursor.expected("`b`"));
        return Err(error.hint("a size is a number followed by `b`, as in `8b`"));
    }
    Ok(bytes)
}

fn keyword<const N: usize>(
    cursor: &mut Cursor,
    comment: &mut bool,
    expected: &[u8; N],
) -> Result<()> {
    cursor.skip(comment);
    let mark = cursor.mark();
    let word = cursor.word();
    cursor.skip(comment);
    if <&[u8; N]>::try_from(word).is_ok_and(|word| word == expected) {
        return Ok(());
    }
    let expected = String::from_utf8_lossy(expected);
    Err(cursor.error_from(mark, format!("expected `{expected}`")))
}

fn small(cursor: &mut Cursor, what: &str) -> Result<u32> {
    let mark = cursor.mark();
    let value = cursor.number(what)?;
    let value = u32::try_from(value).ok().filter(|&value| value != WILDCARD);
    value.ok_or_else(|| cursor.error_from(mark, format!("{what} must be at most {}", WILDCARD - 1)))
}

/// A number, or -1 for any.
fn wildcard_or(cursor: &mut Cursor, what: &str) -> Result<u32> {
    let mark = cursor.mark();
    if !cursor.eat(b'-') {
        return small(cursor, what);
    }
    if cursor.number(what)? == 1 {
        return Ok(WILDCARD);
    }
    let problem = format!("{what} must not be negative");
    Err(cursor.error_from(mark, problem).hint("-1 matches any"))
}

/// `tag 1 cpu 2 nic 3`, each of them optional.
fn attributes(cursor: &mut Cursor, comment: &mut bool, message: bool) -> Result<Attributes> {
    let mut attributes = Attributes { tag: 0, cpu: 0, nic: 0 };
    cursor.skip(comment);
    let mut seen = 0;
    while !cursor.at_end() {
        let mark = cursor.mark();
        let word = cursor.word();
        cursor.skip(comment);
        let order = match <&[u8; 3]>::try_from(word) {
            Ok(b"tag") if message => {
                attributes.tag = wildcard_or(cursor, "a tag")?;
                1
            }
            Ok(b"cpu") => {
                attributes.cpu = index(cursor, "a cpu")?;
                2
            }
            Ok(b"nic") if message => {
                attributes.nic = index(cursor, "a nic")?;
                3
            }
            _ => {
                let problem = if message {
                    "expected `tag`, `cpu`, `nic` or end of line"
                } else {
                    "expected `cpu` or end of line"
                };
                return Err(match cursor.not_whole(mark) {
                    Some(error) if !message && seen == 0 => error.hint(
                        "a calc is a whole number of units; for finer times use --calc-unit 1ps",
                    ),
                    Some(error) => error,
                    None => cursor.error_from(mark, problem),
                });
            }
        };
        if order <= seen {
            let problem = "attributes must be unique and in the order tag, cpu, nic";
            return Err(cursor.error_from(mark, problem));
        }
        seen = order;
        cursor.skip(comment);
    }
    Ok(attributes)
}

fn index(cursor: &mut Cursor, what: &str) -> Result<u8> {
    let mark = cursor.mark();
    let value = cursor.number(what)?;
    u8::try_from(value).map_err(|_| cursor.error_from(mark, format!("{what} must be at most 255")))
}
