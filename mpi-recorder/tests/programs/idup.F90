! Duplicates communicators while the stack changes: the library keeps the handle in a variable of its own until the
! call returns, and nothing may read it there later.
program t
  use mpi
  implicit none
  integer :: ierr, comm, req, i
  call MPI_Init(ierr)
  do i = 1, 20
    call dup(comm, req)
    call smash(200)
    call MPI_Wait(req, MPI_STATUS_IGNORE, ierr)
    call MPI_Barrier(comm, ierr)
    call MPI_Comm_free(comm, ierr)
  end do
  call MPI_Finalize(ierr)
  print *, 'done'
contains
  subroutine dup(c, r)
    integer, intent(out) :: c, r
    call MPI_Comm_idup(MPI_COMM_WORLD, c, r, ierr)
  end subroutine
  recursive subroutine smash(n)
    integer, intent(in) :: n
    integer :: a(64)
    a = -n
    if (n > 0) call smash(n-1)
    if (a(1) > 0) print *, a
  end subroutine
end program
