# find_package(ringpipe) gives the target ringpipe::ringpipe, wherever this tree
# lies: link a program in C or C++ with it. For the C++ interface, the program
# sets C++20 itself.
#
# This file is in lib/cmake/ringpipe, or in Debian's packages one folder deeper,
# in lib/x86_64-linux-gnu/cmake/ringpipe.
get_filename_component(_ringpipe_folder "${CMAKE_CURRENT_LIST_DIR}/../.."
                       REALPATH)
get_filename_component(_ringpipe_prefix "${_ringpipe_folder}/.." ABSOLUTE)
if(NOT EXISTS "${_ringpipe_prefix}/include/ringpipe/ringpipe.h")
  get_filename_component(_ringpipe_prefix "${_ringpipe_prefix}/.." ABSOLUTE)
endif()
if(NOT TARGET ringpipe::ringpipe)
  add_library(ringpipe::ringpipe SHARED IMPORTED)
  set_target_properties(
    ringpipe::ringpipe
    PROPERTIES IMPORTED_LOCATION "${_ringpipe_folder}/libringpipe.so.0"
               IMPORTED_SONAME "libringpipe.so.0"
               INTERFACE_INCLUDE_DIRECTORIES "${_ringpipe_prefix}/include")
endif()
unset(_ringpipe_folder)
unset(_ringpipe_prefix)
