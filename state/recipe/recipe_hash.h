#ifndef RESEAT_STATE_RECIPE_RECIPE_HASH_H
#define RESEAT_STATE_RECIPE_RECIPE_HASH_H

#include "state/base/bytes/content_hash.h"
#include "state/recipe/recipe.h"

/**
 * Hash everything that the result of @recipe depends on, except the device: source or IL, options,
 * kept headers, specialisation constants, and the steps. Options that differ only in white space
 * are equal.
 *
 * @prologue  Text that drivers get before each source.
 * Returns 0, -ENOMEM, or -ENOTSUP: the same recipe may have another result at another time (headers
 * that were not all kept, a source that names the date or the time).
 */
MUST_CHECK int recipe_hash(const struct recipe *recipe, const char *prologue,
                           struct content_hash *hash);

#endif
