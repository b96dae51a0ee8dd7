! Names regions of a Fortran program for Detour. Without the collector, both subroutines do nothing.
!
!     use detour
!     call detour_begin("solve")
!     ...
!     call detour_end()
module detour
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: detour_begin, detour_end

  abstract interface
    subroutine begins(name) bind(c)
      import :: c_char
      character(kind=c_char), intent(in) :: name(*)
    end subroutine
    subroutine ends() bind(c)
    end subroutine
  end interface
  interface
    function dlsym(handle, name) bind(c, name="dlsym")
      import :: c_ptr, c_funptr, c_char
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: dlsym
    end function
  end interface

contains

  ! Provided by the collector when it is preloaded.
  function found(name) result(address)
    character(len=*), intent(in) :: name
    type(c_funptr) :: address
    address = dlsym(c_null_ptr, name//c_null_char)
  end function

  subroutine detour_begin(name)
    character(len=*), intent(in) :: name
    procedure(begins), pointer :: call_it
    type(c_funptr) :: address
    address = found("detour_region_begin")
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, call_it)
    call call_it(trim(name)//c_null_char)
  end subroutine

  subroutine detour_end()
    procedure(ends), pointer :: call_it
    type(c_funptr) :: address
    address = found("detour_region_end")
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, call_it)
    call call_it()
  end subroutine
end module
