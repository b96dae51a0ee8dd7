! The three Fortran bindings (-DUSE_MPIF, -DUSE_MPI, -DUSE_F08): makes calls of all kinds and writes them down
! as log.h does.
program fortran
#ifdef USE_F08
  use mpi_f08
#define COMM_T type(MPI_Comm)
#define REQUEST_T type(MPI_Request)
#define STATUS_T type(MPI_Status)
#define STATUS_D
#define STATUS_N(n) (n)
#else
#ifdef USE_MPI
  use mpi
#endif
#define COMM_T integer
#define REQUEST_T integer
#define STATUS_T integer
#define STATUS_D (MPI_STATUS_SIZE)
#define STATUS_N(n) (MPI_STATUS_SIZE, n)
#endif
  implicit none
#ifdef USE_MPIF
  include 'mpif.h'
#endif
  integer :: rank, size, next, prev, ierr, i, id
  integer :: a(64), b(64), counts(4), places(4)
  double precision :: x(8), y(8)
  logical :: flag
  COMM_T :: half, cart
  REQUEST_T :: q(2)
  STATUS_T :: st STATUS_D
  STATUS_T :: sts STATUS_N(2)
  character(len=4096) :: path
  character(len=*), parameter :: w = 'c=0,1,2,3'
  character(len=16) :: h
  a = 1; b = 0; x = 1.5d0; id = 0
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call get_environment_variable('LOG_DIR', path)
  write (path, '(a,a,i0,a)') trim(path), '/rank-', rank, '.txt'
  open (10, file=path)
  write (10, '(a)') 'MPI_Init'
  next = mod(rank + 1, size)
  prev = mod(rank + size - 1, size)
  do i = 1, 9
    call MPI_Irecv(b, 9, MPI_INTEGER, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, q(1), ierr)
    write (10, '(3a,i0)') 'MPI_Irecv ', w, ' p=-1 t=5 b=36 q=', id
    call MPI_Isend(a, i, MPI_INTEGER, next, 5, MPI_COMM_WORLD, q(2), ierr)
    write (10, '(3a,i0,a,i0,a,i0)') 'MPI_Isend ', w, ' p=', next, ' t=5 b=', 4*i, ' q=', id + 1
    if (mod(i, 2) == 0) then
      call MPI_Waitall(2, q, MPI_STATUSES_IGNORE, ierr)
    else
      call MPI_Waitall(2, q, sts, ierr)
    end if
    write (10, '(a,i0,a,i0,a,i0,a,i0,a)') 'MPI_Waitall R=', id, ':done:', prev, '/5/', 4*i, ',', id + 1, ':done'
    id = id + 2
  end do
  call MPI_Sendrecv(a, 2, MPI_INTEGER, next, 6, b, 4, MPI_INTEGER, prev, MPI_ANY_TAG, MPI_COMM_WORLD, &
    MPI_STATUS_IGNORE, ierr)
  write (10, '(3a,i0,a,i0,a,i0,a)') 'MPI_Sendrecv ', w, ' p=', next, ' t=6 b=8 s=', prev, ' u=-1 r=16 g=', prev, '/6/8'
  call MPI_Send(x, 3, MPI_DOUBLE_PRECISION, next, 7, MPI_COMM_WORLD, ierr)
  write (10, '(3a,i0,a)') 'MPI_Send ', w, ' p=', next, ' t=7 b=24'
  call MPI_Recv(y, 8, MPI_DOUBLE_PRECISION, prev, 7, MPI_COMM_WORLD, st, ierr)
  write (10, '(3a,i0,a,i0,a)') 'MPI_Recv ', w, ' p=', prev, ' t=7 b=64 g=', prev, '/7/24'
  call MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, flag, MPI_STATUS_IGNORE, ierr)
  write (10, '(3a)') 'MPI_Iprobe ', w, ' p=-1 t=99 f=0'
  call MPI_Send_init(a, 3, MPI_INTEGER, next, 8, MPI_COMM_WORLD, q(1), ierr)
  write (10, '(3a,i0,a,i0)') 'MPI_Send_init ', w, ' p=', next, ' t=8 b=12 q=', id
  call MPI_Recv_init(b, 3, MPI_INTEGER, prev, 8, MPI_COMM_WORLD, q(2), ierr)
  write (10, '(3a,i0,a,i0)') 'MPI_Recv_init ', w, ' p=', prev, ' t=8 b=12 q=', id + 1
  do i = 1, 3
    call MPI_Startall(2, q, ierr)
    write (10, '(a,i0,a,i0,a)') 'MPI_Startall R=', id, ':started,', id + 1, ':started'
    call MPI_Waitall(2, q, MPI_STATUSES_IGNORE, ierr)
    write (10, '(a,i0,a,i0,a,i0,a)') 'MPI_Waitall R=', id, ':done,', id + 1, ':done:', prev, '/8/12'
  end do
  do i = 1, 2
    call MPI_Request_free(q(i), ierr)
    write (10, '(a,i0,a)') 'MPI_Request_free R=', id + i - 1, ':freed'
  end do
  id = id + 2
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  write (10, '(2a)') 'MPI_Barrier ', w
  call MPI_Bcast(x, 4, MPI_DOUBLE_PRECISION, 2, MPI_COMM_WORLD, ierr)
  write (10, '(3a)') 'MPI_Bcast ', w, ' p=2 b=32'
  call MPI_Allreduce(x, y, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  write (10, '(3a)') 'MPI_Allreduce ', w, ' b=24 op=Sum'
  call MPI_Allreduce(MPI_IN_PLACE, y, 3, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  write (10, '(3a)') 'MPI_Allreduce ', w, ' b=24 op=Max'
  do i = 1, 4
    counts(i) = i
    places(i) = i*(i - 1)/2
  end do
  call MPI_Allgatherv(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  write (10, '(3a,i0,a)') 'MPI_Allgatherv ', w, ' b=', 4*(rank + 1), ' r=40 G=4,8,12,16'
  call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, counts, places, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  write (10, '(3a,i0,a)') 'MPI_Allgatherv ', w, ' b=', 4*(rank + 1), ' r=40 G=4,8,12,16'
  call MPI_Ialltoall(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, MPI_COMM_WORLD, q(1), ierr)
  write (10, '(3a,i0)') 'MPI_Ialltoall ', w, ' b=8 r=8 q=', id
  call MPI_Wait(q(1), MPI_STATUS_IGNORE, ierr)
  write (10, '(a,i0,a)') 'MPI_Wait R=', id, ':done'
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, ierr)
  h = 'c=0,2'
  if (mod(rank, 2) == 1) h = 'c=1,3'
  write (10, '(4a)') 'MPI_Comm_split ', w, ' n=', h(3:5)
  call MPI_Reduce(x, y, 2, MPI_DOUBLE_PRECISION, MPI_MIN, 1, half, ierr)
  write (10, '(3a)') 'MPI_Reduce ', trim(h), ' p=1 b=16 op=Min'
  call MPI_Comm_free(half, ierr)
  write (10, '(2a)') 'MPI_Comm_free ', trim(h)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, (/4/), (/.true./), .false., cart, ierr)
  write (10, '(3a)') 'MPI_Cart_create ', w, ' n=0,1,2,3'
  call MPI_Barrier(cart, ierr)
  write (10, '(2a)') 'MPI_Barrier ', w
  call MPI_Comm_free(cart, ierr)
  write (10, '(2a)') 'MPI_Comm_free ', w
  call MPI_Finalize(ierr)
  write (10, '(a)') 'MPI_Finalize'
  close (10)
  print '(a,i0,8f12.6)', 'rank ', rank, x(1), y(1), y(2), y(3)
end program
