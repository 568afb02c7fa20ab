#ifndef RESEAT_STATE_PROGRAM_KERNEL_TRAITS_H
#define RESEAT_STATE_PROGRAM_KERNEL_TRAITS_H

#include <stdbool.h>

#include "state/recipe/recipe.h"

/*
 * May a launch of a kernel be given in pieces?
 *
 * Work-groups may run in any order, and one after another (3.2.2 of the specification), so that a
 * launch is the same whether its groups are given at once or piece after piece; but for a group
 * that waits for another one, which natively may run at the same time. That no group waits is read
 * in the source: waiting takes a loop that looks again at memory which another group writes, and a
 * compiler only looks again where an atomic function, a volatile access or a fence of global memory
 * tells it to. What cannot be read (IL, C++, headers that were not kept, options of one
 * compiler's own, names that macros paste of parts that are not known) is not cut.
 */

struct kernel_traits {
    const char *whole; /**< Why it cannot be cut, in words; static. NULL: it can. */
    const char *stays; /**< Why its work-groups must all write the same memory, likewise. NULL: each
                            may write its own copy, to be merged (merge.h). */
    bool places;       /**< It asks where in the whole launch a group is, other than by global ids:
                            in pieces it is told so by a program of its own: program_cut.h. */
    bool loops;        /**< It has a loop, or may have one: nothing bounds what an item takes. Only
                            where it can be cut. */
    bool even; /**< Its language knows only work-groups that divide a launch: what else there
                    is for the driver to refuse, as a whole. */
};

/**
 * What each kernel of @names, which @recipe makes, uses with all that it calls. Source is read as
 * it stands, whichever branch of a condition it is in; once for all of them.
 * 0 or -ENOMEM.
 */
MUST_CHECK int kernel_traits_read_all(const struct recipe *recipe, size_t count,
                                      const char *const *names, struct kernel_traits *ret_traits);
static inline int kernel_traits_read(const struct recipe *recipe, const char *name,
                                     struct kernel_traits *ret_traits)
{
    return kernel_traits_read_all(recipe, 1, &name, ret_traits);
}

/**
 * 1 when what @recipe makes has variables in the global address space that live as long as the
 * program (6.3.2 of the OpenCL C 3.0 specification): state that no call can read.
 *
 * Drivers are not to be relied on for this: NVIDIA's and POCL's compile them and tell of 0 bytes.
 * IL is read exactly. Source is read as it stands (kernel_source.h), with the words of its macros
 * in their place: a declaration that is left out by #if is seen as well. Pure.
 * Else 0, or -ENOMEM.
 */
MUST_CHECK int recipe_variables(const struct recipe *recipe);
/** True also without memory to read it. */
static inline bool recipe_keeps_variables(const struct recipe *recipe)
{
    return recipe_variables(recipe) != 0;
}

#endif
