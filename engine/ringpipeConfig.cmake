# find_package(ringpipe) gives the target ringpipe::ringpipe, wherever this tree
# lies: link a program in C or C++ with it. For the C++ interface, the program
# sets C++20 itself.
get_filename_component(_ringpipe_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.."
                       ABSOLUTE)
if(NOT TARGET ringpipe::ringpipe)
  add_library(ringpipe::ringpipe SHARED IMPORTED)
  set_target_properties(
    ringpipe::ringpipe
    PROPERTIES IMPORTED_LOCATION "${_ringpipe_prefix}/lib/libringpipe.so.0"
               IMPORTED_SONAME "libringpipe.so.0"
               INTERFACE_INCLUDE_DIRECTORIES "${_ringpipe_prefix}/include")
endif()
unset(_ringpipe_prefix)
