/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library that is no plugin. */
int afd_nothing_to_see(void);
int afd_nothing_to_see(void) {
    return 0;
}
