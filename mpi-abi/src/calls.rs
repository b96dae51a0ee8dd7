//! The table of MPI calls: one row a call, with the role of every argument in the order of the C
//! binding. The collector makes its wrappers from it, readers the names of calls.
//!
//! The position of a row is the number that stands in the files: add rows at the end of the last class
//! only (a class may appear twice), never move or remove one.

/// What the collector does with an argument. Everything else is [`Role::Other`] and passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The only or the send buffer; can be `MPI_IN_PLACE` in collectives.
    Buffer,
    /// Elements of the buffer.
    Count,
    /// Datatype of the buffer.
    Type,
    /// Receive buffer of a call with two; can be `MPI_IN_PLACE` in scatters.
    ReceiveBuffer,
    /// Elements of the receive buffer.
    ReceiveCount,
    /// Datatype of the receive buffer.
    ReceiveType,
    /// Elements for every peer.
    Counts,
    /// Datatype for every peer.
    Types,
    /// Elements from every peer.
    ReceiveCounts,
    /// Datatype from every peer.
    ReceiveTypes,
    /// Rank that is sent to.
    Dest,
    /// Rank that is received from.
    Source,
    /// Tag; of the sent message if there is a [`Role::ReceiveTag`].
    Tag,
    /// Tag of the received message.
    ReceiveTag,
    /// Root of a collective.
    Root,
    /// Target rank of a one-sided operation.
    Target,
    /// Reduction operation.
    Op,
    /// Communicator of the call.
    Comm,
    /// Address of the communicator that the call ends.
    CommInOut,
    /// Address where the call stores a new communicator.
    NewComm,
    /// Address where the call stores a new request.
    Request,
    /// Address of one request.
    RequestInOut,
    /// One request by value.
    RequestValue,
    /// Length of the array of requests.
    RequestCount,
    /// Array of requests.
    Requests,
    /// Address where the call stores which request has completed.
    Index,
    /// Address where the call stores whether it succeeded.
    Flag,
    /// Address where the call stores how many requests have completed.
    OutCount,
    /// Array where the call stores which requests have completed.
    Indices,
    /// Address of one status.
    Status,
    /// Array of statuses.
    Statuses,
    /// Address where a matching probe stores its message.
    NewMessage,
    /// Address of the message that is received.
    Message,
    /// One-sided window.
    Window,
    /// Address where the call stores a new window.
    NewWindow,
    /// Address of the window that the call frees.
    WindowInOut,
    /// Address of the datatype that the call frees.
    TypeInOut,
    /// A size in bytes.
    Bytes,
    /// Passed through.
    Other,
}

/// The family of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Sends, receives, probes.
    PointToPoint,
    /// Completion and control of requests.
    Request,
    /// Collectives; blocking, nonblocking, persistent, neighbourhood.
    Collective,
    /// Making and freeing communicators, topologies included.
    Communicator,
    /// Making and freeing datatypes, packing.
    Datatype,
    /// Windows, one-sided operations and their synchronisation.
    OneSided,
    /// Files.
    Io,
    /// Start, end, abort, control of profiling.
    Environment,
    /// Memory, local reductions, computing the dimensions of a grid: nothing that another rank meets.
    Local,
}

/// Calls the macro `$callback` with the whole table:
/// `Class { Name c [Role Role ...]; ... } ...`, where `c` stands for a large-count variant `Name_c`.
#[macro_export]
macro_rules! for_each_call {
    ($callback:path) => {
        $callback! {
            PointToPoint {
                Send c [Buffer Count Type Dest Tag Comm];
                Bsend c [Buffer Count Type Dest Tag Comm];
                Ssend c [Buffer Count Type Dest Tag Comm];
                Rsend c [Buffer Count Type Dest Tag Comm];
                Recv c [Buffer Count Type Source Tag Comm Status];
                Isend c [Buffer Count Type Dest Tag Comm Request];
                Ibsend c [Buffer Count Type Dest Tag Comm Request];
                Issend c [Buffer Count Type Dest Tag Comm Request];
                Irsend c [Buffer Count Type Dest Tag Comm Request];
                Irecv c [Buffer Count Type Source Tag Comm Request];
                Send_init c [Buffer Count Type Dest Tag Comm Request];
                Bsend_init c [Buffer Count Type Dest Tag Comm Request];
                Ssend_init c [Buffer Count Type Dest Tag Comm Request];
                Rsend_init c [Buffer Count Type Dest Tag Comm Request];
                Recv_init c [Buffer Count Type Source Tag Comm Request];
                Sendrecv c [Buffer Count Type Dest Tag
                    ReceiveBuffer ReceiveCount ReceiveType Source ReceiveTag Comm Status];
                Sendrecv_replace c [Buffer Count Type Dest Tag Source ReceiveTag Comm Status];
                Isendrecv c [Buffer Count Type Dest Tag
                    ReceiveBuffer ReceiveCount ReceiveType Source ReceiveTag Comm Request];
                Isendrecv_replace c [Buffer Count Type Dest Tag Source ReceiveTag Comm Request];
                Probe [Source Tag Comm Status];
                Iprobe [Source Tag Comm Flag Status];
                Mprobe [Source Tag Comm NewMessage Status];
                Improbe [Source Tag Comm Flag NewMessage Status];
                Mrecv c [Buffer Count Type Message Status];
                Imrecv c [Buffer Count Type Message Request];
            }
            Request {
                Wait [RequestInOut Status];
                Waitall [RequestCount Requests Statuses];
                Waitany [RequestCount Requests Index Status];
                Waitsome [RequestCount Requests OutCount Indices Statuses];
                Test [RequestInOut Flag Status];
                Testall [RequestCount Requests Flag Statuses];
                Testany [RequestCount Requests Index Flag Status];
                Testsome [RequestCount Requests OutCount Indices Statuses];
                Request_get_status [RequestValue Flag Status];
                Cancel [RequestInOut];
                Request_free [RequestInOut];
                Start [RequestInOut];
                Startall [RequestCount Requests];
            }
            Collective {
                Barrier [Comm];
                Bcast c [Buffer Count Type Root Comm];
                Gather c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Root Comm];
                Gatherv c [Buffer Count Type ReceiveBuffer ReceiveCounts Other ReceiveType Root Comm];
                Scatter c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Root Comm];
                Scatterv c [Buffer Counts Other Type ReceiveBuffer ReceiveCount ReceiveType Root Comm];
                Allgather c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Comm];
                Allgatherv c [Buffer Count Type ReceiveBuffer ReceiveCounts Other ReceiveType Comm];
                Alltoall c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Comm];
                Alltoallv c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm];
                Alltoallw c [Buffer Counts Other Types
                    ReceiveBuffer ReceiveCounts Other ReceiveTypes Comm];
                Reduce c [Buffer ReceiveBuffer Count Type Op Root Comm];
                Allreduce c [Buffer ReceiveBuffer Count Type Op Comm];
                Reduce_scatter c [Buffer ReceiveBuffer ReceiveCounts Type Op Comm];
                Reduce_scatter_block c [Buffer ReceiveBuffer Count Type Op Comm];
                Scan c [Buffer ReceiveBuffer Count Type Op Comm];
                Exscan c [Buffer ReceiveBuffer Count Type Op Comm];
                Neighbor_allgather c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Comm];
                Neighbor_allgatherv c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm];
                Neighbor_alltoall c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Comm];
                Neighbor_alltoallv c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm];
                Neighbor_alltoallw c [Buffer Counts Other Types
                    ReceiveBuffer ReceiveCounts Other ReceiveTypes Comm];
                Ibarrier [Comm Request];
                Ibcast c [Buffer Count Type Root Comm Request];
                Igather c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Root Comm Request];
                Igatherv c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Root Comm Request];
                Iscatter c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Root Comm Request];
                Iscatterv c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCount ReceiveType Root Comm Request];
                Iallgather c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Comm Request];
                Iallgatherv c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Request];
                Ialltoall c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType Comm Request];
                Ialltoallv c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Request];
                Ialltoallw c [Buffer Counts Other Types
                    ReceiveBuffer ReceiveCounts Other ReceiveTypes Comm Request];
                Ireduce c [Buffer ReceiveBuffer Count Type Op Root Comm Request];
                Iallreduce c [Buffer ReceiveBuffer Count Type Op Comm Request];
                Ireduce_scatter c [Buffer ReceiveBuffer ReceiveCounts Type Op Comm Request];
                Ireduce_scatter_block c [Buffer ReceiveBuffer Count Type Op Comm Request];
                Iscan c [Buffer ReceiveBuffer Count Type Op Comm Request];
                Iexscan c [Buffer ReceiveBuffer Count Type Op Comm Request];
                Ineighbor_allgather c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Comm Request];
                Ineighbor_allgatherv c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Request];
                Ineighbor_alltoall c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Comm Request];
                Ineighbor_alltoallv c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Request];
                Ineighbor_alltoallw c [Buffer Counts Other Types
                    ReceiveBuffer ReceiveCounts Other ReceiveTypes Comm Request];
                Barrier_init [Comm Other Request];
                Bcast_init c [Buffer Count Type Root Comm Other Request];
                Gather_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Root Comm Other Request];
                Gatherv_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Root Comm Other Request];
                Scatter_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Root Comm Other Request];
                Scatterv_init c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCount ReceiveType Root Comm Other Request];
                Allgather_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Comm Other Request];
                Allgatherv_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Other Request];
                Alltoall_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Comm Other Request];
                Alltoallv_init c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Other Request];
                Alltoallw_init c [Buffer Counts Other Types
                    ReceiveBuffer ReceiveCounts Other ReceiveTypes Comm Other Request];
                Reduce_init c [Buffer ReceiveBuffer Count Type Op Root Comm Other Request];
                Allreduce_init c [Buffer ReceiveBuffer Count Type Op Comm Other Request];
                Reduce_scatter_init c [Buffer ReceiveBuffer ReceiveCounts Type Op Comm Other Request];
                Reduce_scatter_block_init c [Buffer ReceiveBuffer Count Type Op Comm Other Request];
                Scan_init c [Buffer ReceiveBuffer Count Type Op Comm Other Request];
                Exscan_init c [Buffer ReceiveBuffer Count Type Op Comm Other Request];
                Neighbor_allgather_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Comm Other Request];
                Neighbor_allgatherv_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Other Request];
                Neighbor_alltoall_init c [Buffer Count Type
                    ReceiveBuffer ReceiveCount ReceiveType Comm Other Request];
                Neighbor_alltoallv_init c [Buffer Counts Other Type
                    ReceiveBuffer ReceiveCounts Other ReceiveType Comm Other Request];
                Neighbor_alltoallw_init c [Buffer Counts Other Types
                    ReceiveBuffer ReceiveCounts Other ReceiveTypes Comm Other Request];
            }
            Communicator {
                Comm_dup [Comm NewComm];
                Comm_dup_with_info [Comm Other NewComm];
                Comm_idup [Comm NewComm Request];
                Comm_idup_with_info [Comm Other NewComm Request];
                Comm_split [Comm Other Other NewComm];
                Comm_split_type [Comm Other Other Other NewComm];
                Comm_create [Comm Other NewComm];
                Comm_create_group [Comm Other Tag NewComm];
                Comm_free [CommInOut];
                Comm_disconnect [CommInOut];
                Intercomm_create [Comm Other Other Other Tag NewComm];
                Intercomm_merge [Comm Other NewComm];
                Cart_create [Comm Other Other Other Other NewComm];
                Cart_sub [Comm Other NewComm];
                Graph_create [Comm Other Other Other Other NewComm];
                Dist_graph_create [Comm Other Other Other Other Other Other Other NewComm];
                Dist_graph_create_adjacent [Comm
                    Other Other Other Other Other Other Other Other NewComm];
            }
            Datatype {
                Type_free [TypeInOut];
            }
            OneSided {
                Win_create c [Other Bytes Other Other Comm NewWindow];
                Win_allocate c [Bytes Other Other Comm Other NewWindow];
                Win_allocate_shared c [Bytes Other Other Comm Other NewWindow];
                Win_create_dynamic [Other Comm NewWindow];
                Win_attach [Window Other Bytes];
                Win_detach [Window Other];
                Win_free [WindowInOut];
                Put c [Buffer Count Type Target Other Other Other Window];
                Get c [Buffer Count Type Target Other Other Other Window];
                Accumulate c [Buffer Count Type Target Other Other Other Op Window];
                Get_accumulate c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType
                    Target Other Other Other Op Window];
                Fetch_and_op [Buffer Other Type Target Other Op Window];
                Compare_and_swap [Buffer Other Other Type Target Other Window];
                Rput c [Buffer Count Type Target Other Other Other Window Request];
                Rget c [Buffer Count Type Target Other Other Other Window Request];
                Raccumulate c [Buffer Count Type Target Other Other Other Op Window Request];
                Rget_accumulate c [Buffer Count Type ReceiveBuffer ReceiveCount ReceiveType
                    Target Other Other Other Op Window Request];
                Win_fence [Other Window];
                Win_lock [Other Target Other Window];
                Win_unlock [Target Window];
                Win_lock_all [Other Window];
                Win_unlock_all [Window];
                Win_flush [Target Window];
                Win_flush_all [Window];
                Win_flush_local [Target Window];
                Win_flush_local_all [Window];
                Win_sync [Window];
                Win_post [Other Other Window];
                Win_start [Other Other Window];
                Win_complete [Window];
                Win_wait [Window];
                Win_test [Window Flag];
            }
            Io {
                File_open [Comm Other Other Other Other];
                File_close [Other];
                File_sync [Other];
                File_read c [Other Buffer Count Type Other];
                File_read_all c [Other Buffer Count Type Other];
                File_read_at c [Other Other Buffer Count Type Other];
                File_read_at_all c [Other Other Buffer Count Type Other];
                File_read_shared c [Other Buffer Count Type Other];
                File_read_ordered c [Other Buffer Count Type Other];
                File_write c [Other Buffer Count Type Other];
                File_write_all c [Other Buffer Count Type Other];
                File_write_at c [Other Other Buffer Count Type Other];
                File_write_at_all c [Other Other Buffer Count Type Other];
                File_write_shared c [Other Buffer Count Type Other];
                File_write_ordered c [Other Buffer Count Type Other];
                File_iread c [Other Buffer Count Type Request];
                File_iread_all c [Other Buffer Count Type Request];
                File_iread_at c [Other Other Buffer Count Type Request];
                File_iread_at_all c [Other Other Buffer Count Type Request];
                File_iread_shared c [Other Buffer Count Type Request];
                File_iwrite c [Other Buffer Count Type Request];
                File_iwrite_all c [Other Buffer Count Type Request];
                File_iwrite_at c [Other Other Buffer Count Type Request];
                File_iwrite_at_all c [Other Other Buffer Count Type Request];
                File_iwrite_shared c [Other Buffer Count Type Request];
                File_read_all_begin c [Other Buffer Count Type];
                File_read_all_end [Other Other Other];
                File_read_at_all_begin c [Other Other Buffer Count Type];
                File_read_at_all_end [Other Other Other];
                File_read_ordered_begin c [Other Buffer Count Type];
                File_read_ordered_end [Other Other Other];
                File_write_all_begin c [Other Buffer Count Type];
                File_write_all_end [Other Other Other];
                File_write_at_all_begin c [Other Other Buffer Count Type];
                File_write_at_all_end [Other Other Other];
                File_write_ordered_begin c [Other Buffer Count Type];
                File_write_ordered_end [Other Other Other];
            }
            Environment {
                Init [Other Other];
                Init_thread [Other Other Other Other];
                Finalize [];
                Abort [Comm Other];
                Pcontrol [Other Other];
            }
            Io {
                File_set_view [Other Other Other Other Other Other];
                File_set_size [Other Other];
                File_preallocate [Other Other];
                File_set_info [Other Other];
                File_set_atomicity [Other Other];
                File_seek [Other Other Other];
                File_seek_shared [Other Other Other];
                File_get_position_shared [Other Other];
                File_delete [Other Other];
            }
            PointToPoint {
                Buffer_detach c [Other Other];
                Buffer_flush [];
                Comm_detach_buffer c [Comm Other Other];
                Comm_flush_buffer [Comm];
            }
            Communicator {
                Comm_spawn [Other Other Other Other Root Comm NewComm Other];
                Comm_spawn_multiple [Other Other Other Other Other Root Comm NewComm Other];
                Comm_accept [Other Other Root Comm NewComm];
                Comm_connect [Other Other Root Comm NewComm];
                Comm_join [Other NewComm];
            }
            Datatype {
                Type_contiguous c [Other Other Other];
                Type_vector c [Other Other Other Other Other];
                Type_create_hvector c [Other Other Other Other Other];
                Type_indexed c [Other Other Other Other Other];
                Type_create_hindexed c [Other Other Other Other Other];
                Type_create_indexed_block c [Other Other Other Other Other];
                Type_create_hindexed_block c [Other Other Other Other Other];
                Type_create_struct c [Other Other Other Other Other];
                Type_create_subarray c [Other Other Other Other Other Other Other];
                Type_create_darray c [Other Other Other Other Other Other Other Other Other Other];
                Type_create_resized c [Other Other Other Other];
                Type_create_f90_integer [Other Other];
                Type_create_f90_real [Other Other Other];
                Type_create_f90_complex [Other Other Other];
                Type_dup [Other Other];
                Type_commit [Other];
                Pack c [Other Count Type Other Other Other Comm];
                Unpack c [Other Other Other Other Count Type Comm];
                Pack_external c [Other Other Count Type Other Other Other];
                Unpack_external c [Other Other Other Other Other Count Type];
            }
            Request {
                Grequest_start [Other Other Other Other Request];
                Grequest_complete [Other];
            }
            Communicator {
                Comm_set_info [Comm Other];
                Cart_map [Comm Other Other Other Other];
                Graph_map [Comm Other Other Other Other];
                Open_port [Other Other];
                Close_port [Other];
                Publish_name [Other Other Other];
                Lookup_name [Other Other Other];
                Unpublish_name [Other Other Other];
            }
            OneSided {
                Win_set_info [Window Other];
                Win_shared_query c [Window Target Other Other Other];
            }
            Local {
                Buffer_attach c [Other Bytes];
                Alloc_mem [Bytes Other Other];
                Free_mem [Other];
                Reduce_local c [Other Other Count Type Op];
                Dims_create [Other Other Other];
            }
        }
    };
}

/// A row of the table.
struct Row {
    name: &'static str,
    large: Option<&'static str>,
    class: Class,
    arguments: &'static [Role],
}

macro_rules! table {
    ($($class:ident { $($name:ident $($large:ident)? [ $($role:ident)* ];)* })*) => {
        /// An MPI call, named as in MPI without the prefix `MPI_`. A large-count variant (`MPI_Send_c`)
        /// is the same call; see [`Signature::large`](crate::Signature).
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Call { $($($name,)*)* }

        impl Call {
            /// All calls, in the order of their numbers.
            pub const ALL: &[Call] = &[$($(Call::$name,)*)*];
        }

        static ROWS: [Row; Call::ALL.len()] = [$($(Row {
            name: concat!("MPI_", stringify!($name)),
            large: table!(@large $name $($large)?),
            class: Class::$class,
            arguments: &[$(Role::$role,)*],
        },)*)*];
    };
    (@large $name:ident) => { None };
    (@large $name:ident c) => { Some(concat!("MPI_", stringify!($name), "_c")) };
}
for_each_call!(table);

impl Call {
    /// Number in the files.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The call with a number.
    pub fn from_number(number: u16) -> Option<Call> {
        Call::ALL.get(usize::from(number)).copied()
    }

    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Name of the C binding, with the prefix `MPI_`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Name of the large-count binding (`MPI_Send_c`), if there is one.
    pub const fn large_name(self) -> Option<&'static str> {
        self.row().large
    }

    /// Family of the call.
    pub const fn class(self) -> Class {
        self.row().class
    }

    /// The roles of the arguments, in order.
    pub const fn arguments(self) -> &'static [Role] {
        self.row().arguments
    }

    /// Whether an argument has this role.
    pub fn has(self, role: Role) -> bool {
        self.arguments().contains(&role)
    }

    /// Whether the request that the call makes is only started by `MPI_Start` or `MPI_Startall`, and
    /// remains until it is freed.
    pub fn is_persistent(self) -> bool {
        self.name().ends_with("_init") && self.has(Role::Request)
    }

    /// Whether this is a neighbourhood collective, whose peers are those of the topology.
    pub fn is_neighborhood(self) -> bool {
        matches!(self.class(), Class::Collective) && self.name().contains("eighbor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_found_by_its_number() {
        for &call in Call::ALL {
            assert_eq!(Call::from_number(call.number()), Some(call));
        }
        assert_eq!(Call::from_number(Call::ALL.len() as u16), None);
    }

    #[test]
    fn names_differ() {
        extern crate std;
        let mut names = std::collections::BTreeSet::new();
        for &call in Call::ALL {
            assert!(names.insert(call.name()), "{} is there twice", call.name());
            if let Some(large) = call.large_name() {
                assert!(names.insert(large));
            }
        }
    }

    #[test]
    fn numbers_of_version_1_have_not_moved() {
        // A sample of rows; a moved row would change the meaning of files that exist.
        assert_eq!(Call::Send.number(), 0);
        assert_eq!(Call::Imrecv.number(), 24);
        assert_eq!(Call::Wait.number(), 25);
        assert_eq!(Call::Barrier.number(), 38);
        assert_eq!(Call::Init.number(), 191);
        assert_eq!(Call::File_delete.number(), 204);
        assert_eq!(Call::Comm_join.number(), 213);
        assert_eq!(Call::Type_contiguous.number(), 214);
        assert_eq!(Call::Dims_create.number(), 250);
    }

    #[test]
    fn an_array_of_requests_comes_with_its_length() {
        for &call in Call::ALL {
            assert_eq!(call.has(Role::Requests), call.has(Role::RequestCount), "{}", call.name());
        }
    }

    #[test]
    fn init_calls_are_persistent_and_mpi_init_is_not() {
        assert!(Call::Send_init.is_persistent() && Call::Allreduce_init.is_persistent());
        assert!(!Call::Init.is_persistent() && !Call::Isend.is_persistent());
        assert!(Call::Ineighbor_alltoallw.is_neighborhood() && !Call::Alltoallw.is_neighborhood());
    }
}
