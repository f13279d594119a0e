-- Filters of the list of policies are not saved any more: the address of the list has them.
DROP TABLE IF EXISTS filters;
