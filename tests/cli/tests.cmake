# Tests that run the tessera command. Each script names the binary it is given and needs python3 only.
if(TARGET tessera_tool)
  foreach(part configs commands data)
    add_test(NAME cli.bad_${part}
      COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/bad_config_table.py
        --tessera $<TARGET_FILE:tessera_tool> --part ${part})
    set_tests_properties(cli.bad_${part} PROPERTIES LABELS "cli" TIMEOUT 300)
  endforeach()
  if(TESSERA_WITH_MPI)
    foreach(drill parity_dense parity_moe resume failing_rank stalled_rank hopeless_numbers
            going_back stopping)
      add_test(NAME cli.${drill}
        COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/drills.py
          --tessera $<TARGET_FILE:tessera_tool> ${drill})
      set_tests_properties(cli.${drill} PROPERTIES LABELS "mpi" TIMEOUT 600 PROCESSORS 2)
    endforeach()
  endif()
endif()
