/* Predefined values of the MPI 5.0 ABI: once, for the header of the programs and for the library that translates. */
#define HANDLES(X) \
    X(Comm) X(Group) X(Datatype) X(Op) X(Request) X(Message) X(Win) X(File) X(Info) X(Errhandler)

#define PREDEFINED(X) \
    X(Op, OP_NULL, 0x20) X(Op, SUM, 0x21) X(Op, MIN, 0x22) X(Op, MAX, 0x23) X(Op, PROD, 0x24) \
    X(Op, BAND, 0x28) X(Op, BOR, 0x29) X(Op, BXOR, 0x2a) X(Op, LAND, 0x30) X(Op, LOR, 0x31) \
    X(Op, LXOR, 0x32) X(Op, MINLOC, 0x38) X(Op, MAXLOC, 0x39) X(Op, REPLACE, 0x3c) X(Op, NO_OP, 0x3d) \
    X(Comm, COMM_NULL, 0x100) X(Comm, COMM_WORLD, 0x101) X(Comm, COMM_SELF, 0x102) \
    X(Group, GROUP_NULL, 0x108) X(Group, GROUP_EMPTY, 0x109) \
    X(Win, WIN_NULL, 0x110) X(File, FILE_NULL, 0x118) \
    X(Message, MESSAGE_NULL, 0x128) X(Message, MESSAGE_NO_PROC, 0x129) \
    X(Info, INFO_NULL, 0x130) X(Info, INFO_ENV, 0x131) \
    X(Errhandler, ERRHANDLER_NULL, 0x140) X(Errhandler, ERRORS_ARE_FATAL, 0x141) \
    X(Errhandler, ERRORS_RETURN, 0x142) \
    X(Request, REQUEST_NULL, 0x180) \
    X(Datatype, DATATYPE_NULL, 0x200) X(Datatype, AINT, 0x201) X(Datatype, COUNT, 0x202) \
    X(Datatype, OFFSET, 0x203) X(Datatype, PACKED, 0x207) X(Datatype, SHORT, 0x208) X(Datatype, INT, 0x209) \
    X(Datatype, LONG, 0x20a) X(Datatype, LONG_LONG, 0x20b) X(Datatype, UNSIGNED, 0x20d) \
    X(Datatype, UNSIGNED_LONG, 0x20e) X(Datatype, FLOAT, 0x210) X(Datatype, DOUBLE, 0x214) \
    X(Datatype, 2INT, 0x22b) X(Datatype, CHAR, 0x243) X(Datatype, BYTE, 0x247) \
    X(Datatype, INT64_T, 0x258) X(Datatype, UINT64_T, 0x259)

#define NUMBERS(X) \
    X(ANY_SOURCE, -1) X(ANY_TAG, -2) X(PROC_NULL, -3) X(ROOT, -4) \
    X(THREAD_SINGLE, 0) X(THREAD_FUNNELED, 1024) X(THREAD_SERIALIZED, 2048) X(THREAD_MULTIPLE, 4096) \
    X(CART, 211) X(GRAPH, 212) X(DIST_GRAPH, 213) X(COMM_TYPE_SHARED, 221) \
    X(LOCK_EXCLUSIVE, 301) X(LOCK_SHARED, 302) \
    X(SEEK_SET, 401) X(SEEK_CUR, 402) X(SEEK_END, 403) X(MODE_CREATE, 2) X(MODE_RDWR, 32)
