#include "state/opencl/info.h"
#include "tests/support/leaks.h"

TestSuite(info, .fini = leaks_check, .timeout = 60);

Test(info, answers_keep_the_specifications_protocol)
{
    char room[8] = "zzzzzzz";
    size_t size = 99;

    cr_expect_eq(info_answer("abc", 4, 0, NULL, &size), CL_SUCCESS);
    cr_expect_eq(size, 4);
    cr_expect_eq(info_answer("abc", 4, 8, room, NULL), CL_SUCCESS);
    cr_expect_str_eq(room, "abc");
    cr_expect_eq(room[4], 'z');
    size = 99;
    cr_expect_eq(info_answer("wxyz", 5, 4, room, &size), CL_INVALID_VALUE);
    cr_expect_str_eq(room, "abc", "nothing is written on an error");
    cr_expect_eq(size, 99);
    cr_expect_eq(info_answer(NULL, 0, 0, room, &size), CL_SUCCESS);
    cr_expect_eq(size, 0);
    cr_expect_eq(info_answer("abc", 4, 0, NULL, NULL), CL_SUCCESS);
}
