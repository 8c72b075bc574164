# The conformance suite and failing ranks under mpirun.
if(TESSERA_WITH_MPI)
  find_program(MPIRUN mpirun)
  foreach(program mpi_ranks mpi_attach)
    add_executable(test_${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cpp)
    target_include_directories(test_${program} PRIVATE
      ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(test_${program} PRIVATE tessera_internal)
  endforeach()

  # tessera_mpirun(VARIABLE RANKS): the launcher's command line. The options are Open MPI's, for
  # containers that run as root and have fewer cores than ranks; others take their own.
  function(tessera_mpirun variable ranks)
    execute_process(COMMAND ${MPIRUN} --version OUTPUT_VARIABLE version ERROR_QUIET)
    set(command ${MPIRUN} -np ${ranks})
    if("${version}" MATCHES "Open MPI|OpenRTE")
      list(APPEND command --oversubscribe --bind-to none
        --mca btl_vader_single_copy_mechanism none)
    endif()
    set(${variable} ${command} PARENT_SCOPE)
  endfunction()

  function(tessera_mpi_test name ranks)
    cmake_parse_arguments(ARG "" "PROGRAM;CODE;TEXT;ONCE;LIMIT" "" ${ARGN})
    if(NOT ARG_PROGRAM)
      set(ARG_PROGRAM test_mpi_ranks)
    endif()
    if(NOT ARG_CODE)
      set(ARG_CODE 0)
    endif()
    if(NOT ARG_LIMIT)
      set(ARG_LIMIT 280)
    endif()
    tessera_mpirun(mpirun ${ranks})
    add_test(NAME comm.mpi.${name} COMMAND ${CMAKE_COMMAND} -DCODE=${ARG_CODE} "-DTEXT=${ARG_TEXT}"
      "-DONCE=${ARG_ONCE}" -DLIMIT=${ARG_LIMIT}
      -P ${PROJECT_SOURCE_DIR}/tests/comm/expect_exit.cmake --
      ${mpirun} $<TARGET_FILE:${ARG_PROGRAM}> ${ARG_UNPARSED_ARGUMENTS})
    set_tests_properties(comm.mpi.${name} PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS ${ranks}
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endfunction()

  foreach(ranks 1 2 3 4 7)
    tessera_mpi_test(suite_${ranks} ${ranks} suite TEXT "suite passed on ${ranks} ranks")
  endforeach()
  tessera_mpi_test(suite_messages_2 2 suite --messages TEXT "suite passed")
  tessera_mpi_test(suite_messages_3 3 suite --messages --piece 1000 --window 5000
    TEXT "suite passed")
  tessera_mpi_test(suite_tiny_windows 3 suite --window 1 TEXT "suite passed")
  # More than the machine has: messages, said once per group.
  tessera_mpi_test(no_room 2 suite --window 100000000000000 TEXT "suite passed"
    ONCE "group world of 2 ranks exchanges messages")
  tessera_mpi_test(large 2 large)
  tessera_mpi_test(large_pieces 2 large --messages --piece 1000)
  tessera_mpi_test(nothing 4 nothing)
  tessera_mpi_test(attach 3 PROGRAM test_mpi_attach TEXT "attached and left")

  foreach(links windows messages)
    set(option)
    if(links STREQUAL messages)
      set(option --messages)
    endif()
    tessera_mpi_test(throw_${links} 3 throw ${option} CODE 3 LIMIT 30
      ONCE "error: tokens.bin is missing")
    tessera_mpi_test(absent_${links} 3 absent --timeout 1 ${option} CODE 5 LIMIT 30
      ONCE "error: all_reduce #[0-9]+ .token counts.*no answer from rank 2 within 1 s")
    tessera_mpi_test(mismatch_${links} 3 mismatch ${option} CODE 2 LIMIT 30
      ONCE "error: ranks of group world disagree: rank 0 is in all_gather #[0-9]+ .block 1")
    tessera_mpi_test(counts_${links} 3 counts ${option} CODE 2 LIMIT 30
      ONCE "rank 0 sends 3 elements to rank 2, which expects 2")
    tessera_mpi_test(die_${links} 3 die ${option} CODE 137 LIMIT 20 TEXT "signal 9")
    tessera_mpi_test(deaf_${links} 3 deaf ${option} CODE 4 LIMIT 20
      ONCE "error: this one is damaged")
    tessera_mpi_test(same_error_${links} 3 same_error ${option} CODE 2 LIMIT 30
      ONCE "error: all ranks see this .run.yaml:3: trainer.")
  endforeach()
endif()
