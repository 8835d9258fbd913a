# For the C tests of a folder: with HUTCH_SANITIZE, the options of their compiler and linker, and
# test_environment, what a sanitizer has to be told.
set(test_environment "")

# The engine is instrumented by the Swift toolchain, so the tests must be by its clang.
if(HUTCH_SANITIZE)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "HUTCH_SANITIZE needs the Swift toolchain's clang: see scripts/test")
  endif()
  add_compile_options(-fsanitize=${HUTCH_SANITIZE} -fno-omit-frame-pointer)
  add_compile_definitions(HUTCH_SANITIZED)
  add_link_options(-fsanitize=${HUTCH_SANITIZE} -fuse-ld=lld)
  if(HUTCH_SANITIZE STREQUAL "thread")
    # Its runtime has interceptors for libdispatch, which no code calls here.
    execute_process(COMMAND ${CMAKE_Swift_COMPILER} -print-target-info
      OUTPUT_VARIABLE target_info COMMAND_ERROR_IS_FATAL ANY)
    string(JSON runtime GET "${target_info}" paths runtimeLibraryPaths 0)
    add_link_options(-L${runtime} -ldispatch -lBlocksRuntime -Wl,-rpath,${runtime})
    # The child of a fork sharing opens caches of its own, and those have threads. A process with
    # threads would sleep a second before it exits.
    string(CONCAT test_environment "TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:"
      "atexit_sleep_ms=100:"
      "suppressions=${CMAKE_CURRENT_LIST_DIR}/thread.supp")
  else()
    # LeakSanitizer needs ptrace, which not every container allows.
    file(WRITE ${PROJECT_BINARY_DIR}/leaks.c "int main(void) { return 0; }")
    try_run(leaks_run leaks_built ${PROJECT_BINARY_DIR}/leaks ${PROJECT_BINARY_DIR}/leaks.c
      COMPILE_DEFINITIONS -fsanitize=address LINK_OPTIONS -fsanitize=address -fuse-ld=lld)
    if(leaks_built AND leaks_run EQUAL 0)
      set(test_environment "ASAN_OPTIONS=detect_leaks=1")
    else()
      message(STATUS "LeakSanitizer does not work here: leaks are not looked for")
      set(test_environment "ASAN_OPTIONS=detect_leaks=0")
    endif()
    # What is freed is kept from reuse until 32 MB more have been, for 256 MB: most of the kernel's
    # time went into fresh pages. Ten frames of a stack name the caller in a test.
    string(APPEND test_environment ":quarantine_size_mb=32:malloc_context_size=10")
    # What is too large for it is no error of a program that asks for memory.
    string(APPEND test_environment ":allocator_may_return_null=1")
    # AddressSanitizer sees each block, which the library's own heap would hide.
    list(APPEND test_environment HUTCH_MALLOC=1)
  endif()
endif()
