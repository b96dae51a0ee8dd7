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
        command: "doctor",
        examples: &[
            ("doctor", "what this machine can record"),
            ("doctor --strict", "for scripts: is everything there?"),
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
            ("record -- mpirun -n 4 ./app", "what the kernel takes from a program"),
            ("record --cgroup /sys/fs/cgroup/system.slice/slurmstepd.scope/job_42", "from a job"),
            ("record --until 'detour>500us' --run 'logger detour'", "until something happens"),
        ],
        statuses: &[
            "126, 127  the command cannot be run, or was not found",
            "N  of the recorded command",
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
            ("report --baseline good.detour node*.detour", "which nodes are worse than a good one"),
        ],
        statuses: &[
            "1  with --baseline, a node fails, or its recording cannot be read",
            "3  with --baseline, failed: nothing is known about the nodes",
        ],
        see_also: &["whatif", "diff", "export"],
    },
    More {
        command: "import",
        examples: &[("import noise.txt -o noise.detour", "a file of netgauge")],
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
        examples: &[("simulate collective --noise node.detour --ranks 2..1Mi", "at any scale")],
        statuses: &[],
        see_also: &["simulate collective", "simulate skeleton", "simulate goal", "whatif", "merge"],
    },
    More {
        command: "simulate collective",
        examples: &[
            (
                "simulate collective --op allreduce --noise node.detour --ranks 2..1Mi",
                "how noise slows an allreduce down",
            ),
            (
                "simulate collective --noise periodic:1000Hz,25us --compute 1ms --iterations 100 --ranks 64",
                "synthetic noise, and a job that computes",
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
            ("simulate app detour-mpi", "does the simulation take what the trace took?"),
            (
                "simulate app detour-mpi --noise node.detour --ranks 64,4096,64Ki",
                "what a node's noise costs this program",
            ),
            (
                "simulate app detour-mpi --noise node.detour --without fakemond",
                "and without a daemon",
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
        examples: &[("simulate goal app.goal --noise node.detour --blame", "who delayed whom")],
        statuses: &[],
        see_also: &["goal gen", "goal check"],
    },
    More {
        command: "simulate exchange",
        examples: &[("simulate exchange --noise node.detour", "two nodes that exchange messages")],
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
            ("simulate cycle --ranks 2..1Ki", "redundancy against periodic noise"),
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
        examples: &[("goal from detour-mpi -o app.goal", "a program for other simulators")],
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
        examples: &[("goal check app.goal", "are all messages matched, and does it end?")],
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
            ("tail node.detour --for 1h --ranks 64Ki", "in an hour of a job"),
            ("tail node.detour --check", "does the first tenth predict the rest?"),
        ],
        statuses: &[],
        see_also: &["report", "record", "simulate collective"],
    },
    More {
        command: "diff",
        examples: &[
            ("diff before.detour after.detour", "did it help?"),
            ("diff good.detour now.detour --fail-if-worse 5%", "a gate for scripts"),
        ],
        statuses: &[
            "1  with --fail-if-worse, the job got worse by more than that",
            "3  with --fail-if-worse, failed: nothing is known about the job",
        ],
        see_also: &["report", "whatif"],
    },
    More {
        command: "dist",
        examples: &[
            ("dist latencies.txt", "figures, modes, fits and the tail of numbers in us"),
            ("dist before.txt after.txt --html dist.html", "what changed, on one page"),
            ("dist node.detour --by source", "what each source of noise takes"),
            ("dist latencies.txt --bins log:50ns --json", "counts of logarithmic bins"),
            ("dist - --unit ns", "numbers on standard input"),
        ],
        statuses: &[],
        see_also: &["diff", "report", "simulate"],
    },
    More {
        command: "whatif",
        examples: &[
            ("whatif node.detour", "what would removing each process gain?"),
            ("whatif node.detour --job job.toml --ranks 64Ki", "for your job"),
            ("whatif node.detour --by cpu", "which CPU costs most?"),
        ],
        statuses: &[],
        see_also: &["report", "diff"],
    },
    More {
        command: "blame",
        examples: &[
            ("blame run", "after mpirun -n 4 detour mpi record --noise -o run -- ./app"),
            ("blame run --html blame.html", "with a timeline of the ranks"),
            ("blame run more/node7.detour --json", "with a recording from elsewhere"),
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
            ("mpi report run --partial", "although files of some ranks are missing"),
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
            (
                "mpi record --noise -o run -- mpirun -n 4 ./app",
                "with what the kernel takes from it",
            ),
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
                "started by mpirun with as many ranks: the trace with real MPI calls",
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
            "started by mpirun -n 2: the network between two ranks, for --net net.toml",
        )],
        statuses: &[],
        see_also: &["net", "simulate collective"],
    },
    More {
        command: "mpi latency",
        examples: &[
            (
                "mpi latency -o latencies.json",
                "started by mpirun: exchanges between all pairs, for --latency latencies.json",
            ),
            ("mpi latency --duration 1h -o latencies.json", "for an hour, in bounded memory"),
            ("mpi latency --from latencies.json --html latencies.html", "as a page"),
        ],
        statuses: &[],
        see_also: &["mpi net", "simulate exchange"],
    },
    More {
        command: "net",
        examples: &[
            ("net --tcp --listen", "on one host"),
            ("net --tcp node1 -o net.toml", "on the other: the network between them"),
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
    match MORE.iter().find(|more| more.command == path) {
        Some(more) => command.after_long_help(more.text()),
        None => command,
    }
}

impl More {
    fn text(&self) -> String {
        let mut text = String::from("Examples:\n");
        for (line, purpose) in self.examples {
            text += &format!("  detour {line}\n      {purpose}\n");
        }
        text += "\nExit status:\n  0  done\n  1  failed, with a message on standard error\n";
        let (first, rest): (Vec<&str>, Vec<&str>) = self
            .statuses
            .iter()
            .partition(|status| status.starts_with('1') && !status.starts_with("12"));
        let usual = ["2  wrong usage"];
        for status in first.into_iter().chain(usual).chain(rest) {
            text += &format!("  {status}\n");
        }
        text += "  130  interrupted\n\nSee also: ";
        let also = |name: &&str| format!("detour-{}(1)", name.replace(' ', "-"));
        text + &self.see_also.iter().map(also).collect::<Vec<_>>().join(", ")
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
            assert!(names.iter().any(|name| name == more.command), "no command {}", more.command);
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
}
