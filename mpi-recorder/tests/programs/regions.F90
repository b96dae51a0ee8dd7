! Regions inside of each other, in Fortran.
#include "detour.f90"
program regions
  use mpi
  use detour
  implicit none
  integer :: ierr, step
  call MPI_Init(ierr)
  do step = 1, 2
    call detour_begin("step")
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call detour_begin("solve")
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call detour_end()
    call detour_end()
  end do
  call MPI_Finalize(ierr)
end program
