//! What every help text and man page ends with: examples, exit statuses, and related commands.

use clap::Command;

/// Examples of a command, and the commands to read about next.
struct More {
    /// As typed after `detour`: `simulate goal`.
    command: &'static str,
    /// Commands without `detour`, each with its purpose.
    examples: &'static [(&'static str, &'static str)],
    /// Statuses besides the usual ones.
    statuses: &'static [&'static str],
    see_also: &'static [&'static str],
}

const MORE: &[More] = &[
    More {
        command: "",
        examples: &[
            ("demo", "record this node for 10 s, and show what to do about its noise"),
            ("doctor", "what this machine can record"),
            ("record -d 60s -o node.detour", "record detours and their sources"),
            ("report node.detour", "what to do first, and the sources"),
            ("whatif node.detour", "what would removing each process gain?"),
        ],
        statuses: &["126, 127  a command to record cannot be run, or was not found"],
        see_also: &["demo", "doctor", "record", "report", "whatif", "diff", "simulate", "mpi"],
    },
    More {
        command: "doctor",
        examples: &[
            ("doctor", "what this machine can record"),
            ("doctor --strict", "exit status 1 if a requirement is missing"),
            ("doctor --isolation -d 30s", "what interrupts the isolated CPUs, and why"),
        ],
        statuses: &[
            "1  with --strict, a requirement is missing; with --isolation, a CPU is not quiet",
        ],
        see_also: &["record", "top"],
    },
    More {
        command: "record",
        examples: &[
            ("record", "this node for 10 s"),
            ("record -d 60s -c 2-63 -o node.detour", "some of its CPUs for a minute"),
            ("record --for-ranks 64Ki", "for as long as a projection to 65,536 ranks needs"),
            ("record -- mpirun -n 4 ./app", "noise seen by a program"),
            ("record --cgroup /sys/fs/cgroup/system.slice/slurmstepd.scope/job_42", "by a job"),
            ("record --until 'detour>500us' --run 'logger detour'", "until a detour is this long"),
        ],
        statuses: &[
            "126, 127  the command cannot be run, or was not found",
            "N  exit status of the recorded command",
        ],
        see_also: &["report", "whatif", "doctor"],
    },
    More {
        command: "top",
        examples: &[("top", "all CPUs"), ("top --pid 4711", "what a process sees")],
        statuses: &[],
        see_also: &["record"],
    },
    More {
        command: "report",
        examples: &[
            ("report", "the newest recording in this directory"),
            ("report node.detour --by source --all", "every source"),
            ("report node.detour --html report.html", "a page with figures and projections"),
            ("report node.detour --longest", "the ten longest detours"),
            ("report --baseline good.detour node*.detour", "compare nodes with a good one"),
        ],
        statuses: &[
            "1  with --baseline, a node fails, or its recording cannot be read",
            "3  with --baseline, no verdict because of an error",
        ],
        see_also: &["whatif", "diff", "export"],
    },
    More {
        command: "import",
        examples: &[("import noise.txt -o noise.detour", "a netgauge noise file")],
        statuses: &[],
        see_also: &["export", "simulate"],
    },
    More {
        command: "export",
        examples: &[
            ("export node.detour --to csv", "one line per detour"),
            ("export node.detour --to perfetto -o node.pftrace", "for ui.perfetto.dev"),
        ],
        statuses: &[],
        see_also: &["import", "report"],
    },
    More {
        command: "simulate",
        examples: &[("simulate collective --noise node.detour --ranks 2..1Mi", "an allreduce")],
        statuses: &[],
        see_also: &["simulate collective", "simulate skeleton", "simulate goal", "whatif", "merge"],
    },
    More {
        command: "simulate collective",
        examples: &[
            (
                "simulate collective --op allreduce --noise node.detour --ranks 2..1Mi",
                "slowdown of an allreduce under recorded noise",
            ),
            (
                "simulate collective --noise periodic:1000Hz,25us --compute 1ms --iterations 100 --ranks 64",
                "a job with computation under synthetic noise",
            ),
            (
                "simulate collective --noise 'periodic:1kHz|10Hz,16us|100us' --ranks 2..64Ki --html sweep.html",
                "a sweep over rates and lengths, with figures",
            ),
        ],
        statuses: &[],
        see_also: &["simulate goal", "whatif"],
    },
    More {
        command: "simulate app",
        examples: &[
            ("simulate app detour-mpi", "compare simulated and traced time"),
            (
                "simulate app detour-mpi --noise node.detour --ranks 64,4096,64Ki",
                "cost of a node's noise for this program",
            ),
            (
                "simulate app detour-mpi --noise node.detour --without fakemond",
                "the same without one daemon",
            ),
        ],
        statuses: &[],
        see_also: &["mpi record", "mpi net", "goal from"],
    },
    More {
        command: "simulate skeleton",
        examples: &[
            (
                "simulate skeleton pop --ranks 128,1Ki,32Ki --noise node.detour --with-coscheduled",
                "an ocean model under noise",
            ),
            ("simulate skeleton halo:8x8x8 --noise node.detour --only p2p", "without collectives"),
        ],
        statuses: &[],
        see_also: &["goal gen", "simulate collective"],
    },
    More {
        command: "simulate goal",
        examples: &[("simulate goal app.goal --noise node.detour --blame", "the critical path")],
        statuses: &[],
        see_also: &["goal gen", "goal check"],
    },
    More {
        command: "simulate exchange",
        examples: &[("simulate exchange --noise node.detour", "exchanges between two nodes")],
        statuses: &[],
        see_also: &["simulate alltoall"],
    },
    More {
        command: "simulate alltoall",
        examples: &[("simulate alltoall --noise node.detour --ranks 4,32", "idle times")],
        statuses: &[],
        see_also: &["simulate exchange"],
    },
    More {
        command: "simulate cycle",
        examples: &[
            ("simulate cycle --ranks 2..1Ki", "redundant exchanges under periodic noise"),
            (
                "simulate cycle --noise node.detour --repeat-trace --ranks 64Ki --cycles 1-10 --svg cycles.svg",
                "recorded noise, and the overhead by cycle",
            ),
        ],
        statuses: &[],
        see_also: &["simulate collective"],
    },
    More {
        command: "goal",
        examples: &[("goal gen --op bcast --ranks 64 -o bcast.goal", "a schedule")],
        statuses: &[],
        see_also: &["simulate goal"],
    },
    More {
        command: "goal gen",
        examples: &[
            ("goal gen --op allreduce --ranks 64 -o allreduce.goal", "a schedule as text"),
            ("goal gen --pattern wavefront:4x4 -o sweep.goal", "a model of a program"),
        ],
        statuses: &[],
        see_also: &["simulate goal", "goal check"],
    },
    More {
        command: "goal from",
        examples: &[("goal from detour-mpi -o app.goal", "a schedule for other simulators")],
        statuses: &[],
        see_also: &["mpi record", "simulate app", "goal check"],
    },
    More {
        command: "goal convert",
        examples: &[("goal convert app.goal -o app.bin", "text to binary, or back")],
        statuses: &[],
        see_also: &["goal check"],
    },
    More {
        command: "goal check",
        examples: &[("goal check app.goal", "check for unmatched messages and deadlock")],
        statuses: &[],
        see_also: &["goal stats"],
    },
    More {
        command: "goal stats",
        examples: &[("goal stats app.goal", "messages, bytes and depth")],
        statuses: &[],
        see_also: &["goal check"],
    },
    More {
        command: "tail",
        examples: &[
            ("tail node.detour", "the longest detour in ten times the recorded time"),
            ("tail node.detour --for 1h --ranks 64Ki", "in one hour on 64 Ki ranks"),
            ("tail node.detour --check", "predict the rest from the first tenth"),
        ],
        statuses: &[],
        see_also: &["report", "record", "simulate collective"],
    },
    More {
        command: "inject",
        examples: &[
            ("inject noisy.detour", "the noise of another node, once"),
            (
                "inject noisy.detour --source fakemond -d 5m",
                "only that of one daemon, for 5 minutes",
            ),
            ("inject noisy.detour -c 2-5", "on other CPUs than recorded"),
        ],
        statuses: &[],
        see_also: &["record", "export", "simulate collective"],
    },
    More {
        command: "diff",
        examples: &[
            ("diff before.detour after.detour", "before and after tuning"),
            ("diff good.detour now.detour --fail-if-worse 5%", "fail if the job takes longer"),
        ],
        statuses: &[
            "1  with --fail-if-worse, the job takes longer by more than the limit",
            "3  with --fail-if-worse, no verdict because of an error",
        ],
        see_also: &["report", "whatif"],
    },
    More {
        command: "dist",
        examples: &[
            ("dist latencies.txt", "summary, modes, fits and tail of values in us"),
            ("dist before.txt after.txt --html dist.html", "compare two files on one page"),
            ("dist node.detour --by source", "time taken by each source of noise"),
            ("dist latencies.txt --bins log:50ns --json", "counts of logarithmic bins"),
            ("dist - --unit ns", "numbers on standard input"),
        ],
        statuses: &[],
        see_also: &["diff", "report", "simulate"],
    },
    More {
        command: "whatif",
        examples: &[
            ("whatif node.detour", "gain from removing each process"),
            ("whatif node.detour --job job.toml --ranks 64Ki", "for your job"),
            ("whatif node.detour --by cpu", "cost of the noise of each CPU"),
        ],
        statuses: &[],
        see_also: &["report", "diff"],
    },
    More {
        command: "blame",
        examples: &[
            ("blame run", "after mpirun -n 4 detour mpi record --noise -o run -- ./app"),
            ("blame run --html blame.html", "with a timeline of the ranks"),
            ("blame run more/node7.detour --json", "with a recording outside the directory"),
        ],
        statuses: &[],
        see_also: &["mpi record", "mpi report", "whatif"],
    },
    More {
        command: "mpi",
        examples: &[
            ("mpi record -o run -- mpirun -n 4 ./app", "record the MPI calls of a program"),
            ("mpi report run", "where its time went"),
        ],
        statuses: &[],
        see_also: &["mpi record", "mpi report", "mpi net", "mpi latency", "record"],
    },
    More {
        command: "mpi report",
        examples: &[
            ("mpi report run", "calls, waits, who waited for whom"),
            ("mpi report run --html run.html", "with figures: matrices of ranks, a timeline"),
            ("mpi report run --partial", "even if files of some ranks are missing"),
        ],
        statuses: &[],
        see_also: &["mpi record", "mpi import", "blame"],
    },
    More {
        command: "mpi import",
        examples: &[("mpi import traces -o run", "traces of liballprof, one text file per rank")],
        statuses: &[],
        see_also: &["mpi report"],
    },
    More {
        command: "mpi record",
        examples: &[
            ("mpi record -o run -- mpirun -n 4 ./app", "a whole job on this node"),
            ("mpi record --noise -o run -- mpirun -n 4 ./app", "and the noise that its ranks see"),
            ("mpi record -o run -- ./app", "one rank, as mpirun, mpiexec or srun starts it"),
        ],
        statuses: &["126, 127  the program cannot be run, or was not found", "N  of the program"],
        see_also: &["mpi report", "blame", "record"],
    },
    More {
        command: "mpi replay",
        examples: &[
            (
                "mpi replay run",
                "under mpirun with as many ranks: replay the trace with real MPI calls",
            ),
            ("mpi replay run --deterministic -o again", "requests complete in the traced order"),
        ],
        statuses: &[],
        see_also: &["mpi record", "simulate app", "diff"],
    },
    More {
        command: "mpi net",
        examples: &[(
            "mpi net -o net.toml",
            "under mpirun -n 2: the network between two ranks, for --net net.toml",
        )],
        statuses: &[],
        see_also: &["net", "simulate collective"],
    },
    More {
        command: "mpi latency",
        examples: &[
            (
                "mpi latency -o latencies.json",
                "under mpirun: exchanges between all pairs, for --latency latencies.json",
            ),
            ("mpi latency --duration 1h -o latencies.json", "for an hour, in bounded memory"),
            ("mpi latency --from latencies.json --html latencies.html", "as HTML"),
        ],
        statuses: &[],
        see_also: &["mpi net", "simulate exchange"],
    },
    More {
        command: "net",
        examples: &[
            ("net --tcp --listen", "on one host"),
            ("net --tcp node1 -o net.toml", "on the other host"),
        ],
        statuses: &[],
        see_also: &["mpi net", "simulate collective"],
    },
    More {
        command: "merge",
        examples: &[
            ("merge node*.detour -o job.detour", "the nodes of a job"),
            ("merge shard-*.json", "the shards of a simulation"),
            (
                "merge node1/run node2/run -o run",
                "an MPI run on nodes without a common file system",
            ),
        ],
        statuses: &[],
        see_also: &["record", "simulate"],
    },
    More {
        command: "demo",
        examples: &[("demo", "record, report and project in one go")],
        statuses: &[],
        see_also: &["record", "report"],
    },
    More {
        command: "man",
        examples: &[("man -o man1", "one page per command")],
        statuses: &[],
        see_also: &["completions"],
    },
    More {
        command: "completions",
        examples: &[("completions bash > /etc/bash_completion.d/detour", "for bash")],
        statuses: &[],
        see_also: &["man"],
    },
];

/// The command line with these texts.
pub fn with_examples(command: Command) -> Command {
    added(command, "")
}

fn added(command: Command, path: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut command = command;
    for name in names {
        let path = format!("{path} {name}").trim_start().to_owned();
        command = command.mut_subcommand(name, |command| added(command, &path));
    }
    match more(path) {
        Some(more) => command.after_long_help(more.text()),
        None => command,
    }
}

fn more(path: &str) -> Option<&'static More> {
    MORE.iter().find(|more| more.command == path)
}

/// The same as sections of a man page.
pub fn sections(path: &str) -> String {
    more(path).map_or_else(String::new, More::sections)
}

/// Text in a man page: no word of it is a request, and no character an escape.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

impl More {
    fn text(&self) -> String {
        let mut text = String::from("Examples:\n");
        for (line, purpose) in self.examples {
            text += &format!("  detour {line}\n      {purpose}\n");
        }
        text += "\nExit status:\n";
        for (status, meaning) in self.all_statuses() {
            text += &format!("  {status}  {meaning}\n");
        }
        text += "\nSee also: ";
        let also = |page: String| format!("{page}(1)");
        text + &self.pages().map(also).collect::<Vec<_>>().join(", ")
    }

    fn sections(&self) -> String {
        let entry = |(term, text): (String, &str)| {
            format!(".TP\n\\fB{}\\fR\n{}\n", roff(&term), roff(text))
        };
        let examples = self.examples.iter();
        let examples = examples.map(|(line, purpose)| entry((format!("detour {line}"), *purpose)));
        let statuses = self.all_statuses().map(|(status, text)| entry((status.to_owned(), text)));
        let also = self.pages().map(|page| format!("\\fB{}\\fR(1)", roff(&page)));
        format!(
            ".SH EXAMPLES\n{}.SH \"EXIT STATUS\"\n{}.SH \"SEE ALSO\"\n{}\n",
            examples.collect::<String>(),
            statuses.collect::<String>(),
            also.collect::<Vec<_>>().join(", ")
        )
    }

    /// Every exit status with its meaning, in order.
    fn all_statuses(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = || self.statuses.iter().filter_map(|status| status.split_once("  "));
        let is_first = |(status, _): &(&str, &str)| *status == "1";
        [("0", "success"), ("1", "error, with a message on standard error")]
            .into_iter()
            .chain(own().filter(is_first))
            .chain([("2", "usage error")])
            .chain(own().filter(move |status| !is_first(status)))
            .chain([("130", "interrupted")])
    }

    /// The pages to read next.
    fn pages(&self) -> impl Iterator<Item = String> {
        self.see_also.iter().map(|name| format!("detour-{}", name.replace(' ', "-")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    /// Every command has its texts, and every example is a valid command line.
    #[test]
    fn every_command_has_examples_that_parse() {
        fn all(command: &Command, path: &str, names: &mut Vec<String>) {
            for sub in command
                .get_subcommands()
                .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
            {
                let name = format!("{path} {}", sub.get_name()).trim_start().to_owned();
                names.push(name.clone());
                all(sub, &name, names);
            }
        }
        let mut names = Vec::new();
        all(&cli::command(), "", &mut names);
        for name in &names {
            assert!(MORE.iter().any(|more| more.command == name), "{name} has no examples");
        }
        for more in MORE {
            assert!(
                more.command.is_empty() || names.iter().any(|name| name == more.command),
                "no command {}",
                more.command
            );
            for also in more.see_also {
                assert!(names.iter().any(|name| name == also), "no command {also}");
            }
            for (line, _) in more.examples {
                let line = line.split(" > ").next().unwrap_or(line).replace('\'', "");
                // The words of a quoted command are one argument.
                let line = line.replace("logger detour", "logger");
                let words = std::iter::once("detour").chain(line.split_whitespace());
                let parsed = cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    /// As `man` shows them: sections of their own, in which every entry is a paragraph.
    #[test]
    fn man_pages_have_sections_for_examples_statuses_and_related_pages() {
        let text = sections("record");
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with(".SH")).collect();
        assert_eq!(headings, [".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""]);
        let until = "\\fBdetour record \\-\\-until \\(aqdetour>500us\\(aq";
        assert!(text.contains(&format!(".TP\n{until}")), "{text}");
        assert!(text.contains(".TP\n\\fB126, 127\\fR\n"), "{text}");
        assert!(text.contains("\\fBdetour\\-report\\fR(1), \\fBdetour\\-whatif\\fR(1)"), "{text}");
        for more in MORE {
            let text = sections(more.command);
            // No line of text begins like a request.
            let request = |line: &&str| line.starts_with(['.', '\'']);
            assert!(
                text.lines()
                    .filter(request)
                    .all(|line| { line == ".TP" || line.starts_with(".SH ") })
            );
        }
        let help = cli::command().render_long_help().to_string();
        for part in ["Examples:\n  detour demo", "Exit status:", "See also: detour-demo(1)"] {
            assert!(help.contains(part), "{help}");
        }
    }
}
