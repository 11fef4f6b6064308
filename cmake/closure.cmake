# Which components belong together; here and in an installed package.

# OUT: the components `requested` with all that they use, each after the components that it uses. OUT_unknown: the names that are not
# a component.
function(lockstep_closure out)
  set(wanted ${ARGN})
  set(unknown ${wanted})
  list(REMOVE_ITEM unknown ${lockstep_all_components})
  set(found)
  set(users_first ${lockstep_all_components})
  list(REVERSE users_first)
  foreach(component IN LISTS users_first)
    if(component IN_LIST wanted)
      list(PREPEND found ${component})
      list(APPEND wanted ${lockstep_${component}_components})
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
  set(${out}_unknown ${unknown} PARENT_SCOPE)
endfunction()
