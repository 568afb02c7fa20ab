#ifndef RESEAT_STATE_PROGRAM_KERNEL_TRAITS_H
#define RESEAT_STATE_PROGRAM_KERNEL_TRAITS_H

#include <stdbool.h>

#include "state/recipe/recipe.h"

/*
 * Finds out from its source whether a launch of a kernel may be given in pieces.
 *
 * Work-groups may run in any order, also one after another (3.2.2 of the specification). So a
 * launch gives the same result in pieces, unless a group waits for another one, which natively may
 * run at the same time. To wait, a group has to read memory that another group writes, again and
 * again in a loop; and compilers read memory again only for an atomic function, a volatile access
 * or a fence of global memory. Kernels without such loops are cut. What cannot be read (IL, C++,
 * headers that were not kept, a compiler's own options, names pasted from unknown parts) is not.
 */

struct kernel_traits {
    const char *whole;  /**< Why it cannot be cut: static text; NULL: it can. */
    const char *stays;  /**< Why all of its work-groups must write the same memory: static text.
                           NULL: some may write another copy, which is merged later (merge.h). */
    bool asks_position; /**< It asks where in the launch a group is, other than by global ids: its
                            pieces need the variant of program_cut.h. */
    bool loops;         /**< It has a loop, or may have one: the time of an item has no bound. Only
                             valid when it can be cut. */
    bool even;          /**< Its language requires work-groups that divide a launch: other launches
                             are given whole, for the driver to refuse. */
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
