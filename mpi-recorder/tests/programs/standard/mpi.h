/* The ABI of MPI 5.0, as far as the tests use it: values of the standard's appendix on the ABI. Prototypes are
 * those of the installed MPICH, which the test extracts. */
#ifndef STANDARD_MPI_H
#define STANDARD_MPI_H
#include <stdint.h>

#define MPI_VERSION 5
#define MPI_SUBVERSION 0

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;
typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;

#include "handles.h"
#define HANDLE(TYPE) typedef struct standard_##TYPE *MPI_##TYPE;
HANDLES(HANDLE)
#undef HANDLE
#define CONSTANT(TYPE, NAME, VALUE) static const MPI_##TYPE MPI_##NAME = (MPI_##TYPE)VALUE;
PREDEFINED(CONSTANT)
#undef CONSTANT
#define NUMBER(NAME, VALUE) MPI_##NAME = VALUE,
enum { MPI_SUCCESS, NUMBERS(NUMBER) MPI_UNDEFINED = -32766 };
#undef NUMBER

#define MPI_BOTTOM ((void *)0)
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_UNWEIGHTED ((int *)10)
#define MPI_BSEND_OVERHEAD 512
#define MPI_MAX_PORT_NAME 1024

#include "prototypes.h"
#endif
