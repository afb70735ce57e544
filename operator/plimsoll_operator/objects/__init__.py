"""Kubernetes objects of a plan, rendered and read.

manifests        names, labels, owner; ConfigMaps and the Service
plans            a TrainingPlan as the API server has it
pod_template     a person's template and what Plimsoll adds
pods             what pods wait for, and how they ended
name_conflicts   objects of other owners in the place of ours
owned_objects    made once, removed with care
bounded          documents that others wrote, read within bounds of memory
rank_reports     what ranks report, as one document
page_maps        question, answer and reports as ConfigMaps, for pages
record_maps      attempts as ConfigMaps
events           what `kubectl describe` shows
"""
